// The driver's interface, which Triton and extensions use, and torch through cudaGetDriverEntryPoint.
#include "card.h"

#include <dlfcn.h>
#include <stdio.h>

// The runtime's functions that mean the same.
int cudaStreamBeginCapture(void *stream, int mode);
int cudaStreamEndCapture(void *stream, void **graph);
int cudaStreamIsCapturing(void *stream, int *status);
int cudaThreadExchangeStreamCaptureMode(int *mode);
int cudaEventRecordWithFlags(void *event, void *stream, unsigned flags);
int cudaEventDestroy(void *event);
int cudaStreamWaitEvent(void *stream, void *event, unsigned flags);
int cudaStreamSynchronize(void *stream);
int cudaDeviceSynchronize(void);
int cudaLaunchHostFunc(void *stream, void (*function)(void *), void *data);
int cudaStreamAddCallback(void *stream, void (*function)(void *, int, void *), void *data, unsigned flags);
int cudaDeviceGetDefaultMemPool(void **pool, int device);
int cudaMemPoolGetAttribute(void *pool, int attribute, void *value);
int cudaMemPoolSetAttribute(void *pool, int attribute, void *value);
int cudaMemPoolTrimTo(void *pool, size_t keep);

// ---- devices and contexts: a context is its device's number above 15 ------------------------------------------------
#define FIRST_CONTEXT 16

EXPORT int cuInit(unsigned flags) { return visible_devices() ? OK : NO_DEVICE; }
EXPORT int cuDriverGetVersion(int *version) {
  *version = driver_version();
  return OK;
}
EXPORT int cuDeviceGetCount(int *count) {
  *count = visible_devices();
  return OK;
}
EXPORT int cuDeviceGet(int *device, int index) {
  if (!is_visible(index)) return INVALID_DEVICE;
  *device = index;
  return OK;
}
EXPORT int cuDeviceGetName(char *text, int room, int device) {
  if (!is_visible(device)) return INVALID_DEVICE;
  snprintf(text, (size_t)room, "%s", card()->name);
  return OK;
}
EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device) {
  if (!is_visible(device)) return INVALID_DEVICE;
  *bytes = card()->memory_bytes;
  return OK;
}
EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device) {
  return device_attribute(value, attribute, device);
}
EXPORT int cuDeviceComputeCapability(int *major, int *minor, int device) {
  if (!is_visible(device)) return INVALID_DEVICE;
  *major = card()->sm / 10;
  *minor = card()->sm % 10;
  return OK;
}
static int uuid(unsigned char *bytes, int device) {
  if (!is_visible(device)) return INVALID_DEVICE;
  board_uuid(bytes, board_of(device));
  return OK;
}
EXPORT int cuDeviceGetUuid(unsigned char *bytes, int device) { return uuid(bytes, device); }
EXPORT int cuDeviceGetUuid_v2(unsigned char *bytes, int device) { return uuid(bytes, device); }
EXPORT int cuDeviceGetPCIBusId(char *text, int room, int device) {
  if (!is_visible(device)) return INVALID_DEVICE;
  snprintf(text, (size_t)room, "0000:%02x:00.0", (unsigned)bus_number(board_of(device)));
  return OK;
}
EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
  *flags = 0;
  *active = 1;
  return OK;
}
EXPORT int cuDevicePrimaryCtxRetain(void **context, int device) {
  if (!is_visible(device)) return INVALID_DEVICE;
  *context = (void *)(uintptr_t)(FIRST_CONTEXT + device);
  return OK;
}
EXPORT int cuCtxGetCurrent(void **context) {
  *context = (void *)(uintptr_t)(FIRST_CONTEXT + current_device());
  return OK;
}
static int enter(const void *context) {
  uintptr_t number = (uintptr_t)context;
  return number >= FIRST_CONTEXT && number < FIRST_CONTEXT + MAX_DEVICES ? select_device((int)(number - FIRST_CONTEXT))
                                                                         : OK;
}
EXPORT int cuCtxSetCurrent(void *context) { return enter(context); }
EXPORT int cuCtxPushCurrent_v2(void *context) { return enter(context); }
EXPORT int cuCtxPopCurrent_v2(void **context) { return context ? cuCtxGetCurrent(context) : OK; }
EXPORT int cuCtxGetDevice(int *device) {
  *device = current_device();
  return OK;
}
EXPORT int cuCtxGetApiVersion(void *context, unsigned *version) {
  *version = 3020;
  return OK;
}
EXPORT int cuGetErrorString(int status, const char **text) {
  *text = error_text(status);
  return OK;
}
EXPORT int cuGetErrorName(int status, const char **text) {
  *text = error_name(status);
  return OK;
}

// ---- memory ---------------------------------------------------------------------------------------------------------
static void *pointer(uint64_t address) { return (void *)(uintptr_t)address; }

EXPORT int cuMemAlloc_v2(uint64_t *out, size_t size) {
  return size ? allocate((void **)out, size, current_device()) : INVALID_VALUE;
}
EXPORT int cuMemAllocManaged(uint64_t *out, size_t size, unsigned flags) {
  return size ? allocate_managed((void **)out, size, current_device()) : INVALID_VALUE;
}
EXPORT int cuMemAllocPitch_v2(uint64_t *out, size_t *pitch, size_t width, size_t height, unsigned element_bytes) {
  return width && height ? allocate_rows((void **)out, pitch, width, height) : INVALID_VALUE;
}
EXPORT int cuMemFree_v2(uint64_t p) { return release(pointer(p)); }
EXPORT int cuMemAllocAsync(uint64_t *out, size_t size, void *stream) {
  return size ? allocate_from_pool((void **)out, size, current_device()) : INVALID_VALUE;
}
EXPORT int cuMemAllocFromPoolAsync(uint64_t *out, size_t size, void *pool, void *stream) {
  return size ? allocate_from_pool((void **)out, size, pool_device(pool)) : INVALID_VALUE;
}
EXPORT int cuMemFreeAsync(uint64_t p, void *stream) { return release(pointer(p)); }
EXPORT int cuDeviceGetDefaultMemPool(void **pool, int device) { return cudaDeviceGetDefaultMemPool(pool, device); }
EXPORT int cuDeviceGetMemPool(void **pool, int device) { return cudaDeviceGetDefaultMemPool(pool, device); }
EXPORT int cuMemPoolGetAttribute(void *pool, int attribute, void *value) {
  return cudaMemPoolGetAttribute(pool, attribute, value);
}
EXPORT int cuMemPoolSetAttribute(void *pool, int attribute, void *value) {
  return cudaMemPoolSetAttribute(pool, attribute, value);
}
EXPORT int cuMemPoolTrimTo(void *pool, size_t keep) { return cudaMemPoolTrimTo(pool, keep); }
EXPORT int cuMemAllocHost_v2(void **out, size_t size) { return pinned_allocate(out, size); }
EXPORT int cuMemHostAlloc(void **out, size_t size, unsigned flags) { return pinned_allocate(out, size); }
EXPORT int cuMemFreeHost(void *p) { return unpin_here(p); }
EXPORT int cuMemHostRegister_v2(void *p, size_t size, unsigned flags) { return register_here(p, size); }
EXPORT int cuMemHostUnregister(void *p) { return unregister_here(p); }
EXPORT int cuMemHostGetDevicePointer_v2(uint64_t *out, void *p, unsigned flags) {
  *out = (uint64_t)(uintptr_t)p;
  return OK;
}
EXPORT int cuMemGetInfo_v2(size_t *free, size_t *total) {
  *free = free_bytes(current_device());
  *total = card()->memory_bytes;
  return OK;
}
EXPORT int cuMemGetAddressRange_v2(uint64_t *base, size_t *size, uint64_t p) {
  Range range;
  if (kind_of_memory(pointer(p), &range) == MEMORY_PAGEABLE || !range.size) return INVALID_VALUE;
  if (base) *base = range.base;
  if (size) *size = range.size;
  return OK;
}
static int pointer_attribute(void *out, int attribute, uint64_t p) {
  enum {
    CONTEXT = 1,
    MEMORY_TYPE,
    DEVICE_POINTER,
    HOST_POINTER,
    SYNC_MEMOPS = 6,
    BUFFER_ID,
    IS_MANAGED,
    DEVICE_ORDINAL,
    LEGACY_IPC,
    RANGE_START,
    RANGE_SIZE,
    MAPPED
  };
  Range range;
  int kind = kind_of_memory(pointer(p), &range);
  if (kind == MEMORY_PAGEABLE) return INVALID_VALUE;
  switch (attribute) {
    case CONTEXT: *(uint64_t *)out = FIRST_CONTEXT + (uint64_t)range.device; break;
    case MEMORY_TYPE: *(unsigned *)out = kind == MEMORY_PINNED ? 1 : 2; break;
    case DEVICE_POINTER: *(uint64_t *)out = p; break;
    case HOST_POINTER:
      if (kind == MEMORY_DEVICE) return INVALID_VALUE;
      *(uint64_t *)out = p;
      break;
    case BUFFER_ID: *(uint64_t *)out = range.base; break;   // unlike every other buffer's
    case IS_MANAGED: *(int *)out = kind == MEMORY_MANAGED; break;
    case DEVICE_ORDINAL: *(int *)out = range.device; break;
    case LEGACY_IPC: *(int *)out = range.kind == BY_MALLOC; break;
    case RANGE_START: *(uint64_t *)out = range.base; break;
    case RANGE_SIZE: *(uint64_t *)out = range.size; break;
    case MAPPED: *(int *)out = 1; break;
    default: *(int *)out = 0;
  }
  return OK;
}
EXPORT int cuPointerGetAttribute(void *out, int attribute, uint64_t p) { return pointer_attribute(out, attribute, p); }
EXPORT int cuPointerGetAttributes(unsigned count, const int *attributes, void **out, uint64_t p) {
  for (unsigned i = 0; i < count; i++)
    pointer_attribute(out[i], attributes[i], p);   // what is not known stays as it is
  return OK;
}

EXPORT int cuMemcpy(uint64_t to, uint64_t from, size_t n) { return copy_bytes(pointer(to), pointer(from), n); }
EXPORT int cuMemcpyAsync(uint64_t to, uint64_t from, size_t n, void *s) {
  return copy_bytes(pointer(to), pointer(from), n);
}
EXPORT int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t n) { return copy_bytes(pointer(to), from, n); }
EXPORT int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t n) { return copy_bytes(to, pointer(from), n); }
EXPORT int cuMemcpyDtoD_v2(uint64_t to, uint64_t from, size_t n) { return cuMemcpy(to, from, n); }
EXPORT int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t n, void *s) {
  return cuMemcpyHtoD_v2(to, from, n);
}
EXPORT int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t n, void *s) { return cuMemcpyDtoH_v2(to, from, n); }
EXPORT int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t n, void *s) { return cuMemcpy(to, from, n); }
EXPORT int cuMemsetD8_v2(uint64_t to, unsigned char value, size_t n) { return fill_bytes(pointer(to), value, n); }
EXPORT int cuMemsetD8Async(uint64_t to, unsigned char value, size_t n, void *s) { return cuMemsetD8_v2(to, value, n); }
EXPORT int cuMemsetD32_v2(uint64_t to, unsigned value, size_t n) { return fill_words(pointer(to), value, n); }
EXPORT int cuMemsetD32Async(uint64_t to, unsigned value, size_t n, void *s) { return cuMemsetD32_v2(to, value, n); }

EXPORT int cuStreamCreate(void **stream, unsigned flags) { return create_stream(stream, flags, 0); }
EXPORT int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
  return create_stream(stream, flags, priority);
}
EXPORT int cuStreamBeginCapture_v2(void *stream, int mode) { return cudaStreamBeginCapture(stream, mode); }
EXPORT int cuStreamBeginCaptureToGraph(void *stream, void *graph, const void *dependencies, const void *edges,
                                       size_t count, int mode) {
  return cudaStreamBeginCapture(stream, mode);
}
EXPORT int cuStreamEndCapture(void *stream, void **graph) { return cudaStreamEndCapture(stream, graph); }
EXPORT int cuStreamIsCapturing(void *stream, int *status) { return cudaStreamIsCapturing(stream, status); }
EXPORT int cuThreadExchangeStreamCaptureMode(int *mode) { return cudaThreadExchangeStreamCaptureMode(mode); }
EXPORT int cuEventRecord(void *event, void *stream) { return cudaEventRecordWithFlags(event, stream, 0); }
EXPORT int cuEventRecordWithFlags(void *event, void *stream, unsigned flags) {
  return cudaEventRecordWithFlags(event, stream, flags);
}
EXPORT int cuEventDestroy_v2(void *event) { return cudaEventDestroy(event); }
EXPORT int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
  return cudaStreamWaitEvent(stream, event, flags);
}
EXPORT int cuStreamSynchronize(void *stream) { return cudaStreamSynchronize(stream); }
EXPORT int cuCtxSynchronize(void) { return cudaDeviceSynchronize(); }
EXPORT int cuLaunchHostFunc(void *stream, void (*function)(void *), void *data) {
  return cudaLaunchHostFunc(stream, function, data);
}
EXPORT int cuStreamAddCallback(void *stream, void (*function)(void *, int, void *), void *data, unsigned flags) {
  return cudaStreamAddCallback(stream, function, data, flags);
}
EXPORT int cuStreamGetPriority(void *stream, int *priority) {
  *priority = stream_priority(stream);
  return OK;
}

// ---- looking functions up -------------------------------------------------------------------------------------------
// A statically linked CUDA runtime asks for the driver's private tables, by which it knows NVIDIA's driver. There are
// none here, and it fails with a clean error; success with no table makes nvrtc crash.
EXPORT int cuGetExportTable(const void **table, const void *id) {
  *table = NULL;
  return SYMBOL_NOT_FOUND;
}

static int look_up(const char *name, void **function) {   // the name without a version stands for the newest one
  static const char *const versions[] = {"_v2", "", "_v3"};
  for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
    char full[256];
    snprintf(full, sizeof full, "%s%s", name, versions[i]);
    *function = dlsym(RTLD_DEFAULT, full);
    if (*function) return OK;
  }
  return SYMBOL_NOT_FOUND;
}
enum { FOUND = 0, NOT_FOUND = 1 };   // the same numbers in cudaDriverEntryPointQueryResult and its driver twin
static int entry_point(const char *name, void **function, int *result) {
  int status = look_up(name, function);
  if (result) *result = status == OK ? FOUND : NOT_FOUND;
  return status;
}
EXPORT int cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags, int *result) {
  entry_point(name, function, result);
  return OK;   // the runtime says so in `result` alone
}
EXPORT int cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                            unsigned long long flags, int *result) {
  return cudaGetDriverEntryPoint(name, function, flags, result);
}
EXPORT int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) {
  return entry_point(name, function, NULL);
}
EXPORT int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *result) {
  return entry_point(name, function, result);
}

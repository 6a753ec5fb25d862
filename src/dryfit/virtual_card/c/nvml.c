// NVML: what torch and monitoring scripts ask about the card. Whatever is not here answers "not supported" (names.txt),
// which every caller of NVML has to expect.
#include "card.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };   // nvmlReturn_t

static void *handle_of(int device) { return (void *)(uintptr_t)(device + 1); }
static int device_of(const void *handle) { return (int)(uintptr_t)handle - 1; }
static size_t shown_as_used(const void *handle) { return used_bytes(device_of(handle)) + card()->outside_bytes; }

EXPORT int nvmlInit_v2(void) { return OK; }
EXPORT int nvmlInit(void) { return OK; }
EXPORT int nvmlInitWithFlags(unsigned flags) { return OK; }
EXPORT int nvmlShutdown(void) { return OK; }
EXPORT const char *nvmlErrorString(int status) {
  switch (status) {
    case OK: return "Success";
    case NOT_SUPPORTED: return "Not Supported";
    case NOT_FOUND: return "Not Found";
    default: return "Unknown Error";
  }
}
EXPORT int nvmlSystemGetDriverVersion(char *text, unsigned room) {
  snprintf(text, room, "580.00");
  return OK;
}
EXPORT int nvmlSystemGetCudaDriverVersion(int *version) {
  *version = driver_version();
  return OK;
}
EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }

// NVML does not follow CUDA_VISIBLE_DEVICES, of which any index will do here; torch checks each against this count.
EXPORT int nvmlDeviceGetCount_v2(unsigned *count) {
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  *count = (unsigned)card()->count;
  while (visible && *visible) {
    char *end;
    unsigned long index = strtoul(visible, &end, 10);
    if (end != visible && index < MAX_DEVICES && index >= *count) *count = (unsigned)index + 1;
    visible = strchr(end, ',');
    if (visible) visible++;
  }
  return OK;
}
EXPORT int nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
  if (index >= MAX_DEVICES) return INVALID_ARGUMENT;
  *handle = handle_of((int)index);
  return OK;
}
EXPORT int nvmlDeviceGetHandleByIndex(unsigned index, void **handle) {
  return nvmlDeviceGetHandleByIndex_v2(index, handle);
}
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **handle) {   // domain:bus:device.function
  const char *bus = strchr(id, ':');
  if (!bus) return INVALID_ARGUMENT;
  *handle = (void *)(uintptr_t)strtol(bus + 1, NULL, 16);
  return OK;
}
EXPORT int nvmlDeviceGetHandleByPciBusId(const char *id, void **handle) {
  return nvmlDeviceGetHandleByPciBusId_v2(id, handle);
}
#define UUID_FORMAT "GPU-01000000-0000-0000-0000-0000000000%02x"
EXPORT int nvmlDeviceGetHandleByUUID(const char *id, void **handle) {
  unsigned device;
  if (sscanf(id, UUID_FORMAT, &device) != 1) return NOT_FOUND;
  *handle = handle_of((int)device);
  return OK;
}
EXPORT int nvmlDeviceGetIndex(const void *handle, unsigned *index) {
  *index = (unsigned)device_of(handle);
  return OK;
}
EXPORT int nvmlDeviceGetMinorNumber(const void *handle, unsigned *number) { return nvmlDeviceGetIndex(handle, number); }
EXPORT int nvmlDeviceGetUUID(const void *handle, char *text, unsigned room) {
  snprintf(text, room, UUID_FORMAT, (unsigned)device_of(handle));
  return OK;
}
EXPORT int nvmlDeviceGetName(const void *handle, char *text, unsigned room) {
  snprintf(text, room, "%s", card()->name);
  return OK;
}
EXPORT int nvmlDeviceGetCudaComputeCapability(const void *handle, int *major, int *minor) {
  *major = card()->sm / 10;
  *minor = card()->sm % 10;
  return OK;
}
EXPORT int nvmlDeviceGetPciInfo_v3(const void *handle, void *out) {
  struct {
    char legacy_id[16];
    unsigned domain, bus, device, pci_device, pci_subsystem;
    char id[32];
  } info = {.bus = (unsigned)bus_number(device_of(handle))};
  snprintf(info.legacy_id, sizeof info.legacy_id, "0000:%02X:00.0", info.bus & 0xff);
  snprintf(info.id, sizeof info.id, "00000000:%02X:00.0", info.bus & 0xff);
  memcpy(out, &info, sizeof info);
  return OK;
}

// ---- memory and use -------------------------------------------------------------------------------------------------
EXPORT int nvmlDeviceGetMemoryInfo(const void *handle, void *out) {
  struct {
    unsigned long long total, free, used;
  } info = {.total = card()->memory_bytes, .used = shown_as_used(handle)};
  info.free = info.total - info.used;
  memcpy(out, &info, sizeof info);
  return OK;
}
EXPORT int nvmlDeviceGetMemoryInfo_v2(const void *handle, void *out) {
  struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
  } info = {.total = card()->memory_bytes, .used = shown_as_used(handle)};
  info.free = info.total - info.used;
  memcpy(&info.version, out, sizeof info.version);
  memcpy(out, &info, sizeof info);
  return OK;
}
EXPORT int nvmlDeviceGetUtilizationRates(const void *handle, unsigned *gpu_and_memory) {   // in percent; no kernel runs
  gpu_and_memory[0] = gpu_and_memory[1] = 0;
  return OK;
}
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(const void *handle, unsigned *count, void *out) {
  struct {
    unsigned pid;
    unsigned long long used;
    unsigned instances[2];
  } process = {.pid = (unsigned)getpid(), .used = shown_as_used(handle), .instances = {~0u, ~0u}};   // no MIG
  bool room = out && *count >= 1;
  *count = 1;
  if (!room) return INSUFFICIENT_SIZE;
  memcpy(out, &process, sizeof process);
  return OK;
}
EXPORT int nvmlDeviceGetComputeRunningProcesses_v2(const void *handle, unsigned *count, void *out) {
  return nvmlDeviceGetComputeRunningProcesses_v3(handle, count, out);
}
EXPORT int nvmlDeviceGetComputeRunningProcesses(const void *handle, unsigned *count, void *out) {
  struct {
    unsigned pid;
    unsigned long long used;
  } process = {.pid = (unsigned)getpid(), .used = shown_as_used(handle)};
  bool room = out && *count >= 1;
  *count = 1;
  if (!room) return INSUFFICIENT_SIZE;
  memcpy(out, &process, sizeof process);
  return OK;
}

// ---- links between cards: none --------------------------------------------------------------------------------------
EXPORT int nvmlDeviceGetGpuFabricInfoV(const void *handle, unsigned char *info) {
  enum {
    STATE_AT = 28,
    FABRIC_NOT_SUPPORTED = 0
  };   // nvmlGpuFabricInfoV_t: version, cluster UUID, status, clique, state
  info[STATE_AT] = FABRIC_NOT_SUPPORTED;
  return OK;
}
EXPORT int nvmlDeviceGetP2PStatus(const void *one, const void *other, int capability, int *status) {
  *status = 0;   // they reach each other
  return OK;
}

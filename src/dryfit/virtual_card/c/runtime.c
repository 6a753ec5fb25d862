// The runtime's view of the devices: which there are, their properties and attributes, and errors in words.
#include "card.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local int selected_device, last_error;

int failed(int status) {
  if (status != OK) last_error = status;
  return status;
}
EXPORT int cudaPeekAtLastError(void) { return last_error; }
EXPORT int cudaGetLastError(void) {
  int status = last_error;
  last_error = OK;
  return status;
}

int current_device(void) { return selected_device; }
bool is_visible(int device) { return device >= 0 && device < visible_devices(); }
int select_device(int device) {
  if (!is_visible(device)) return INVALID_DEVICE;
  selected_device = device;
  return OK;
}
int bus_number(int board) { return board + 1; }

EXPORT int cudaGetDeviceCount(int *count) {
  *count = visible_devices();
  return failed(*count ? OK : NO_DEVICE);
}
EXPORT int cudaGetDevice(int *device) {
  *device = selected_device;
  return failed(visible_devices() ? OK : NO_DEVICE);
}
EXPORT int cudaSetDevice(int device) { return failed(select_device(device)); }

// Torch refuses a driver older than its CUDA: the newest of each generation serves all of it.
int driver_version(void) { return card()->cuda == 12 ? 12090 : card()->cuda * 1000; }
EXPORT int cudaDriverGetVersion(int *version) {
  *version = driver_version();
  return OK;
}
EXPORT int cudaRuntimeGetVersion(int *version) {
  const char *library = card()->cuda == 12 ? "libcudart.so.12" : "libcudart.so.13";
  int (*real)(int *) = (int (*)(int *))function_of(library, "cudaRuntimeGetVersion");
  if (!real || real == cudaRuntimeGetVersion || real(version) != OK || !*version) *version = card()->cuda * 1000;
  return OK;
}
EXPORT int cudaDeviceCanAccessPeer(int *can, int device, int peer) {
  if (!is_visible(device) || !is_visible(peer)) return failed(INVALID_DEVICE);
  *can = device != peer;
  return OK;
}
EXPORT int cudaDeviceGetPCIBusId(char *text, int room, int device) {
  if (!is_visible(device)) return failed(INVALID_DEVICE);
  snprintf(text, (size_t)room, "0000:%02x:00.0", (unsigned)bus_number(board_of(device)));
  return OK;
}
EXPORT int cudaDeviceGetByPCIBusId(int *device, const char *id) {   // domain:bus:device.function
  const char *bus = id ? strchr(id, ':') : NULL;
  *device = bus ? device_on((int)strtol(bus + 1, NULL, 16) - bus_number(0)) : -1;
  return *device >= 0 ? OK : failed(INVALID_DEVICE);
}
EXPORT int cuDeviceGetByPCIBusId(int *device, const char *id) { return cudaDeviceGetByPCIBusId(device, id); }

// ---- what the compute capability decides ----------------------------------------------------------------------------
// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
static size_t shared_per_block_optin(void) {
  switch (card()->sm) {
    case 70:
    case 72: return 96 * KIB;
    case 75: return 64 * KIB;
    case 80:
    case 87: return 163 * KIB;
    case 86:
    case 89:
    case 120:
    case 121: return 99 * KIB;
    default: return card()->sm >= 90 ? 227 * KIB : 48 * KIB;
  }
}
static size_t reserved_shared_per_block(void) { return card()->sm >= 80 ? KIB : 0; }
static size_t shared_per_sm(void) { return shared_per_block_optin() + reserved_shared_per_block(); }
static int blocks_per_sm(void) {
  switch (card()->sm) {
    case 75:
    case 86:
    case 87: return 16;
    case 89:
    case 120:
    case 121: return 24;
    default: return 32;
  }
}

// ---- cudaDeviceProp, as byte offsets: CUDA 12 and 13 differ from multiProcessorCount on -----------------------------
typedef struct {
  int size, sms, can_map_host, concurrent_kernels, bus, copy_engines, unified, bus_width, l2, threads_per_sm,
      shared_per_sm, registers_per_sm, managed, cooperative, shared_optin, blocks_per_sm, reserved_shared, pools;
} Layout;
static const Layout cuda12 = {.size = 1032,
                              .sms = 388,
                              .can_map_host = 400,
                              .concurrent_kernels = 576,
                              .bus = 584,
                              .copy_engines = 600,
                              .unified = 604,
                              .bus_width = 612,
                              .l2 = 616,
                              .threads_per_sm = 624,
                              .shared_per_sm = 640,
                              .registers_per_sm = 648,
                              .managed = 652,
                              .cooperative = 688,
                              .shared_optin = 696,
                              .blocks_per_sm = 712,
                              .reserved_shared = 720,
                              .pools = 744};
static const Layout cuda13 = {.size = 1008,
                              .sms = 384,
                              .can_map_host = 392,
                              .concurrent_kernels = 560,
                              .bus = 568,
                              .copy_engines = 584,
                              .unified = 588,
                              .bus_width = 592,
                              .l2 = 596,
                              .threads_per_sm = 604,
                              .shared_per_sm = 624,
                              .registers_per_sm = 632,
                              .managed = 636,
                              .cooperative = 668,
                              .shared_optin = 672,
                              .blocks_per_sm = 688,
                              .reserved_shared = 696,
                              .pools = 720};
enum {
  UUID = 256,
  TOTAL = 288,
  SHARED_PER_BLOCK = 296,
  REGISTERS = 304,
  WARP = 308,
  PITCH = 312,
  BLOCK_THREADS = 320,
  BLOCK_SHAPE = 324,
  GRID_SHAPE = 336,
  CONSTANT = 352,
  MAJOR = 360,
  MINOR = 364,
  ALIGNMENT = 368
};

static void put_int(char *at, int value) { memcpy(at, &value, sizeof value); }
static void put_size(char *at, size_t value) { memcpy(at, &value, sizeof value); }

static int properties(char *p, int device, const Layout *at) {
  if (!is_visible(device)) return failed(INVALID_DEVICE);
  memset(p, 0, (size_t)at->size);
  snprintf(p, 256, "%s", card()->name);
  board_uuid((unsigned char *)p + UUID, board_of(device));
  put_size(p + TOTAL, card()->memory_bytes);
  put_size(p + SHARED_PER_BLOCK, 48 * KIB);
  put_int(p + REGISTERS, 65536);
  put_int(p + WARP, 32);
  put_size(p + PITCH, INT32_MAX);
  put_int(p + BLOCK_THREADS, 1024);
  const int block[3] = {1024, 1024, 64}, grid[3] = {INT32_MAX, 65535, 65535};
  memcpy(p + BLOCK_SHAPE, block, sizeof block);
  memcpy(p + GRID_SHAPE, grid, sizeof grid);
  put_size(p + CONSTANT, 64 * KIB);
  put_int(p + MAJOR, card()->sm / 10);
  put_int(p + MINOR, card()->sm % 10);
  put_size(p + ALIGNMENT, 512);
  put_int(p + at->sms, card()->sms);
  put_int(p + at->bus, bus_number(board_of(device)));
  put_int(p + at->copy_engines, 3);
  put_int(p + at->bus_width, 384);
  put_int(p + at->l2, (int)card()->l2_bytes);
  put_int(p + at->threads_per_sm, card()->threads_per_sm);
  put_size(p + at->shared_per_sm, shared_per_sm());
  put_int(p + at->registers_per_sm, 65536);
  put_size(p + at->shared_optin, shared_per_block_optin());
  put_int(p + at->blocks_per_sm, blocks_per_sm());
  put_size(p + at->reserved_shared, reserved_shared_per_block());
  const int yes[] = {at->can_map_host, at->concurrent_kernels, at->unified, at->managed, at->cooperative, at->pools};
  for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) put_int(p + yes[i], 1);
  return OK;
}
EXPORT int cudaGetDeviceProperties_v2(char *p, int device) {   // the name that CUDA 12's header gives it
  return properties(p, device, &cuda12);
}
EXPORT int cudaGetDeviceProperties(char *p, int device) {
  return properties(p, device, card()->cuda == 12 ? &cuda12 : &cuda13);
}

// ---- attributes: the runtime and the driver number them alike -------------------------------------------------------
// clang-format off
int device_attribute(int *value, int attribute, int device) {
  if (!is_visible(device)) return INVALID_DEVICE;
  switch (attribute) {
    case 1: case 2: case 3: *value = 1024; break;                           // threads of a block, and its shape
    case 4: *value = 64; break;
    case 5: case 11: *value = INT32_MAX; break;                             // grid, pitch
    case 6: case 7: *value = 65535; break;
    case 8: *value = 48 * (int)KIB; break;                                  // shared memory of a block
    case 9: *value = 64 * (int)KIB; break;                                  // constant memory
    case 10: *value = 32; break;                                            // warp
    case 12: case 82: *value = 65536; break;                                // registers of a block, of a multiprocessor
    case 13: *value = 1800000; break;                                       // clocks, kHz: time does not pass here
    case 36: *value = 2600000; break;
    case 14: case 30: *value = 512; break;                                  // alignment of textures and surfaces
    case 51: *value = 32; break;
    case 16: *value = card()->sms; break;
    case 33: *value = bus_number(board_of(device)); break;
    case 37: *value = 384; break;                                           // width of the memory bus
    case 38: *value = (int)card()->l2_bytes; break;
    case 39: *value = card()->threads_per_sm; break;
    case 40: *value = 3; break;                                             // copy engines
    case 75: *value = card()->sm / 10; break;
    case 76: *value = card()->sm % 10; break;
    case 81: *value = (int)shared_per_sm(); break;
    case 87: *value = card()->sm == 80 || card()->sm == 90 ? 2 : 64; break;  // single to double precision
    case 97: *value = (int)shared_per_block_optin(); break;
    case 106: *value = blocks_per_sm(); break;
    case 111: *value = (int)reserved_shared_per_block(); break;
    case 120: *value = card()->sm >= 90; break;                             // clusters
    case 15: case 19: case 31: case 41: case 78: case 79: case 80: case 83: case 89: case 90: case 91: case 95: case 99:
    case 115: case 125:                                                     // copies overlap, memory maps, pools, ...
    case 102: case 103: *value = 1; break;                                  // mapping, and passing a handle on
    // What sends torch down its ordinary paths: no kernel time-out, not integrated, default compute mode, no ECC, no
    // fabric handles, no multicast, no RDMA, one NUMA node, no pageable access from the card.
    case 17: case 18: case 20: case 32: case 34: case 35: case 50: case 84: case 85: case 86: case 88: case 98:
    case 100: case 101: case 104: case 105: case 116: case 117: case 118: case 119: case 124: case 126: case 128:
    case 130: case 131: case 132: case 133: case 134: *value = 0; break;
    default:
      UNFAITHFUL("cudaDeviceGetAttribute");
      *value = 0;
  }
  return OK;
}
// clang-format on
EXPORT int cudaDeviceGetAttribute(int *value, int attribute, int device) {
  return failed(device_attribute(value, attribute, device));
}

// ---- errors ---------------------------------------------------------------------------------------------------------
const char *error_text(int status) {
  switch (status) {
    case OK: return "no error";
    case INVALID_VALUE: return "invalid argument";
    case OUT_OF_MEMORY: return "out of memory";
    case INVALID_FUNCTION: return "invalid device function";
    case NO_KERNEL_IMAGE: return "no kernel image is available for execution on the device";
    case ALREADY_REGISTERED: return "part or all of the requested memory range is already mapped";
    case NOT_REGISTERED: return "pointer does not correspond to a registered memory region";
    case NO_DEVICE: return "no CUDA-capable device is detected";
    case INVALID_DEVICE: return "invalid device ordinal";
    case ILLEGAL_STATE: return "the operation cannot be performed in the present state";
    case SYMBOL_NOT_FOUND: return "named symbol not found";
    case CAPTURE_UNSUPPORTED: return "operation not permitted when stream is capturing";
    default: return "unknown error";
  }
}
const char *error_name(int status) {
  switch (status) {
    case OK: return "cudaSuccess";
    case INVALID_VALUE: return "cudaErrorInvalidValue";
    case OUT_OF_MEMORY: return "cudaErrorMemoryAllocation";
    case INVALID_FUNCTION: return "cudaErrorInvalidDeviceFunction";
    case NO_KERNEL_IMAGE: return "cudaErrorNoKernelImageForDevice";
    case ALREADY_REGISTERED: return "cudaErrorHostMemoryAlreadyRegistered";
    case NOT_REGISTERED: return "cudaErrorHostMemoryNotRegistered";
    case NO_DEVICE: return "cudaErrorNoDevice";
    case INVALID_DEVICE: return "cudaErrorInvalidDevice";
    case ILLEGAL_STATE: return "cudaErrorIllegalState";
    case SYMBOL_NOT_FOUND: return "cudaErrorSymbolNotFound";
    case CAPTURE_UNSUPPORTED: return "cudaErrorStreamCaptureUnsupported";
    default: return "cudaErrorUnknown";
  }
}
EXPORT const char *cudaGetErrorString(int status) { return error_text(status); }
EXPORT const char *cudaGetErrorName(int status) { return error_name(status); }

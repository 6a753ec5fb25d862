// NVML: what torch and monitoring scripts ask about the card. Whatever is not here answers "not supported" (names.txt),
// which every caller of NVML has to expect.
#include "card.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };   // nvmlReturn_t

static void *handle_of(int board) { return (void *)(uintptr_t)(board + 1); }
static int board_on(const void *handle) { return (int)(uintptr_t)handle - 1; }
static size_t shown_as_used(const void *handle) {   // nothing of a card that the program does not see
  int device = device_on(board_on(handle));
  return device < 0 ? 0 : used_bytes(device) + taken_outside(device) + card()->outside_bytes;
}

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

EXPORT int nvmlDeviceGetCount_v2(unsigned *count) {
  *count = (unsigned)boards();
  return OK;
}
EXPORT int nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
  if (index >= (unsigned)boards()) return INVALID_ARGUMENT;
  *handle = handle_of((int)index);
  return OK;
}
EXPORT int nvmlDeviceGetHandleByIndex(unsigned index, void **handle) {
  return nvmlDeviceGetHandleByIndex_v2(index, handle);
}
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **handle) {   // domain:bus:device.function
  const char *bus = strchr(id, ':');
  if (!bus) return INVALID_ARGUMENT;
  long board = strtol(bus + 1, NULL, 16) - bus_number(0);
  if (board < 0 || board >= boards()) return NOT_FOUND;
  *handle = handle_of((int)board);
  return OK;
}
EXPORT int nvmlDeviceGetHandleByPciBusId(const char *id, void **handle) {
  return nvmlDeviceGetHandleByPciBusId_v2(id, handle);
}
enum { UUID_ROOM = 41 };   // "GPU-", 32 digits, 4 dashes, and the end
static void write_uuid(char text[UUID_ROOM], int board) {
  unsigned char bytes[16];
  board_uuid(bytes, board);
  text += snprintf(text, UUID_ROOM, "GPU-");
  for (int i = 0; i < 16; i++) {
    bool dash = i == 4 || i == 6 || i == 8 || i == 10;
    text += sprintf(text, dash ? "-%02x" : "%02x", bytes[i]);
  }
}
EXPORT int nvmlDeviceGetHandleByUUID(const char *id, void **handle) {
  for (int board = 0; board < boards(); board++) {
    char text[UUID_ROOM];
    write_uuid(text, board);
    if (strcmp(text, id)) continue;
    *handle = handle_of(board);
    return OK;
  }
  return NOT_FOUND;
}
EXPORT int nvmlDeviceGetIndex(const void *handle, unsigned *index) {
  *index = (unsigned)board_on(handle);
  return OK;
}
EXPORT int nvmlDeviceGetMinorNumber(const void *handle, unsigned *number) { return nvmlDeviceGetIndex(handle, number); }
EXPORT int nvmlDeviceGetUUID(const void *handle, char *text, unsigned room) {
  if (room < UUID_ROOM) return INSUFFICIENT_SIZE;
  write_uuid(text, board_on(handle));
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
  } info = {.bus = (unsigned)bus_number(board_on(handle))};
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

// A driver of two libraries in one file, for what the virtual card never does: it fails, or has a part of a card (MIG).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int setting(const char *name) {
  const char *text = getenv(name);
  return text ? atoi(text) : 0;
}

int cuInit(unsigned flags) { return setting("FAKE_STATUS"); }
int cuGetErrorString(int status, const char **text) {
  *text = "system has unsupported display driver / cuda driver combination";
  return 0;
}
int cuDeviceGetCount(int *count) { *count = setting("FAKE_COUNT"); return 0; }
int cuDriverGetVersion(int *version) { *version = 12080; return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuDeviceGetName(char *text, int room, int device) {
  snprintf(text, (size_t)room, "NVIDIA A100-SXM4-40GB MIG 1g.5gb");
  return 0;
}
int cuDeviceTotalMem_v2(size_t *size, int device) { *size = (size_t)4864 << 20; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {   // as cuda.h numbers them
  *value = attribute == 16 ? 14 : attribute == 38 ? 5 << 20 : attribute == 39 ? 2048 : attribute == 75 ? 8 : 0;
  return 0;
}
int cuDeviceGetUuid_v2(unsigned char *bytes, int device) {
  for (int i = 0; i < 16; i++) bytes[i] = (unsigned char)(i * 17);
  return 0;
}

int nvmlInit_v2(void) { return setting("FAKE_MONITOR_STATUS"); }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned room) {
  snprintf(text, room, "570.12");
  return 0;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
  static int part;
  *handle = &part;
  return strcmp(uuid, "MIG-00112233-4455-6677-8899-aabbccddeeff") ? 6 : 0;
}
int nvmlDeviceGetMemoryInfo_v2(void *handle, void *out) {
  struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
  } info;
  memcpy(&info, out, sizeof info);
  if (info.version != (sizeof info | 2 << 24)) return 25;   // NVML_ERROR_ARGUMENT_VERSION_MISMATCH
  info.used = 13u << 20;
  memcpy(out, &info, sizeof info);
  return 0;
}

// Which card this is: `key=value` pairs, separated by `;`, in DRYFIT_VIRTUAL_CARD.
#include "card.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static Settings settings = {
    .name = "NVIDIA virtual card",
    .sm = 80,
    .sms = 108,
    .threads_per_sm = 0,
    .l2_bytes = 40 * MIB,
    .memory_bytes = 80 * GIB,
    .count = 1,
    .cudnn = 92400,   // torch refuses one older than the one it was built with
    .wait_seconds = 600,
};
static pthread_once_t parsed = PTHREAD_ONCE_INIT;

static void set(const char *key, const char *value) {
  long long number = atoll(value);
  if (!strcmp(key, "name")) snprintf(settings.name, sizeof settings.name, "%s", value);
  else if (!strcmp(key, "sm")) settings.sm = (int)number;
  else if (!strcmp(key, "sms")) settings.sms = (int)number;
  else if (!strcmp(key, "threads_per_sm")) settings.threads_per_sm = (int)number;
  else if (!strcmp(key, "l2_bytes")) settings.l2_bytes = (size_t)number;
  else if (!strcmp(key, "memory_bytes")) settings.memory_bytes = (size_t)number;
  else if (!strcmp(key, "outside_bytes")) settings.outside_bytes = (size_t)number;
  else if (!strcmp(key, "count")) settings.count = number < MAX_DEVICES ? (int)number : MAX_DEVICES;
  else if (!strcmp(key, "order")) settings.upwards = !strcmp(value, "up");
  else if (!strcmp(key, "cuda")) settings.cuda = (int)number;
  else if (!strcmp(key, "cudnn")) settings.cudnn = (int)number;
  else if (!strcmp(key, "alone")) settings.alone = number != 0;
  else if (!strcmp(key, "wait_seconds")) settings.wait_seconds = (int)number;
  else fprintf(stderr, "dryfit: DRYFIT_VIRTUAL_CARD has no setting '%s'; it is left out.\n", key);
}

// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
static int default_threads_per_sm(int sm) {
  if (sm == 75) return 1024;
  return sm == 86 || sm == 87 || sm == 89 || sm == 120 || sm == 121 ? 1536 : 2048;
}

static void parse(void) {
  const char *text = getenv("DRYFIT_VIRTUAL_CARD");
  char *copy = strdup(text ? text : ""), *rest = NULL;
  for (char *pair = copy ? strtok_r(copy, ";", &rest) : NULL; pair; pair = strtok_r(NULL, ";", &rest)) {
    char *value = strchr(pair, '=');
    if (!value) continue;
    *value = '\0';
    set(pair, value + 1);
  }
  free(copy);
  if (!settings.threads_per_sm) settings.threads_per_sm = default_threads_per_sm(settings.sm);
  if (!settings.cuda) settings.cuda = function_of("libcudart.so.12", "cudaMalloc") ? 12 : 13;
  if (settings.outside_bytes > settings.memory_bytes) settings.outside_bytes = settings.memory_bytes;
}

const Settings *card(void) {
  pthread_once(&parsed, parse);
  return &settings;
}

size_t usable_bytes(void) { return card()->memory_bytes - card()->outside_bytes; }

// CUDA_VISIBLE_DEVICES can change until the program looks. Any index will do: the cards are all alike; but an empty
// list or a -1 hides them all.
int visible_devices(void) {
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  if (!visible) return card()->count;
  if (!*visible || *visible == '-') return 0;
  int listed = 1;
  for (; *visible; visible++) listed += *visible == ',';
  return listed < card()->count ? listed : card()->count;
}

EXPORT int dryfit_is_virtual_card(void) { return 1; }

// Which card this is: `key=value` pairs, separated by `;`, in DRYFIT_VIRTUAL_CARD.
#include "card.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
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
static _Atomic size_t looks;

// A card that nobody meant gives figures that nobody should read.
static _Noreturn void refuse(const char *key, const char *value, const char *reason) {
  fprintf(stderr, "dryfit: DRYFIT_VIRTUAL_CARD has %s=%s, and %s. No such card can be made; the program is stopped.\n",
          key, value, reason);
  abort();
}

static size_t number(const char *key, const char *value, size_t least, size_t most) {
  char *end;
  errno = 0;
  unsigned long long n = strtoull(value, &end, 10);
  if (*value < '0' || *value > '9' || *end) refuse(key, value, "a whole number is expected");
  if (n < least) refuse(key, value, "that is too little");
  return errno || n > most ? most : (size_t)n;
}

static void set(const char *key, const char *value) {
#define IS(name) (!strcmp(key, #name))
#define NUMBER(name, least, most) \
  else if (IS(name)) settings.name = (__typeof__(settings.name))number(key, value, least, most)
  if (IS(name)) snprintf(settings.name, sizeof settings.name, "%s", value);
  NUMBER(sm, 50, 999);
  NUMBER(sms, 1, 100000);
  NUMBER(threads_per_sm, 0, 100000);
  NUMBER(l2_bytes, 0, INT32_MAX);   // torch keeps it in an int
  NUMBER(memory_bytes, 1, (size_t)1 << 50);
  NUMBER(outside_bytes, 0, (size_t)1 << 50);
  NUMBER(count, 0, MAX_DEVICES);
  NUMBER(cuda, 12, 13);
  NUMBER(cudnn, 0, INT32_MAX);
  NUMBER(alone, 0, 1);
  NUMBER(wait_seconds, 0, INT32_MAX);
  else if (IS(order)) settings.order = !strcmp(value, "up") ? UPWARDS : !strcmp(value, "down") ? DOWNWARDS : AS_LINUX;
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
  atomic_fetch_add_explicit(&looks, 1, memory_order_relaxed);
  pthread_once(&parsed, parse);
  return &settings;
}

size_t usable_bytes(void) { return card()->memory_bytes - card()->outside_bytes; }

// ---- which of the machine's cards the program sees -----------------------------------------------------------------
// NVML counts all cards of the machine, CUDA those of CUDA_VISIBLE_DEVICES, in its order; the list ends at the first
// entry that makes no sense, and one that names a card twice names none. The cards are all alike, so any index and any
// UUID will do: an index is NVML's, and the UUIDs of the list are those of its first cards.
typedef struct {
  int count;
  int board[MAX_DEVICES];   // NVML's number of each
  const char *uuid[MAX_DEVICES];   // NULL in a list of indices
} Visible;

static bool same_entry(const Visible *list, int i, int board, const char *uuid) {
  if (!uuid) return list->board[i] == board;
  size_t length = strcspn(uuid, ",");
  return strcspn(list->uuid[i], ",") == length && !strncmp(list->uuid[i], uuid, length);
}
static Visible visible(void) {   // read each time: a program may set the variable until it first looks
  Visible list = {0};
  const char *text = getenv("CUDA_VISIBLE_DEVICES");
  if (!text)
    for (; list.count < card()->count; list.count++) list.board[list.count] = list.count;
  while (text && list.count < MAX_DEVICES) {
    text += strspn(text, " ");
    size_t digits = strspn(text, "0123456789"), end = digits + strspn(text + digits, " ");
    bool index = digits && (text[end] == ',' || !text[end]);
    bool uuid = !strncmp(text, "GPU-", 4) || !strncmp(text, "MIG-", 4);
    int board = index && digits < 6 ? atoi(text) : list.count;
    if ((!index && !uuid) || board >= MAX_DEVICES || (list.count && uuid != !!list.uuid[0])) break;
    for (int i = 0; i < list.count; i++)
      if (same_entry(&list, i, board, uuid ? text : NULL)) return (Visible){0};
    list.uuid[list.count] = uuid ? text : NULL;
    list.board[list.count++] = board;
    text = strchr(text, ',');
    if (text) text++;
  }
  return list;
}

int visible_devices(void) {
  int listed = visible().count;
  return listed < card()->count ? listed : card()->count;
}
int board_of(int device) {
  Visible list = visible();
  return device >= 0 && device < list.count ? list.board[device] : device;
}
int device_on(int board) {
  Visible list = visible();
  for (int i = 0; i < list.count && i < card()->count; i++)
    if (list.board[i] == board) return i;
  return -1;
}
int boards(void) {
  Visible list = visible();
  int n = card()->count;
  for (int i = 0; i < list.count; i++)
    if (list.board[i] >= n) n = list.board[i] + 1;
  return n;
}

static int hexadecimal(char digit) {
  const char *digits = "0123456789abcdef", *found = digit ? strchr(digits, digit | 0x20) : NULL;
  return found ? (int)(found - digits) : -1;
}
void board_uuid(unsigned char bytes[16], int board) {
  Visible list = visible();
  const char *text = board >= 0 && board < list.count ? list.uuid[board] : NULL;
  memset(bytes, 0, 16);
  bytes[0] = 1;
  bytes[15] = (unsigned char)board;
  if (!text) return;
  text += 4;
  for (int i = 0; i < 32; i++, text++) {   // the list may have its first digits only
    if (*text == '-') text++;
    int digit = hexadecimal(*text);
    if (digit < 0) return;
    int low = i % 2;
    bytes[i / 2] = (unsigned char)(low ? (bytes[i / 2] & 0xf0) | digit : (digit << 4) | (bytes[i / 2] & 0x0f));
  }
}

EXPORT int dryfit_is_virtual_card(void) { return 1; }

// How often a call has depended on which card it is: from the first on, this process's environment no longer decides it.
EXPORT size_t dryfit_looks_at_card(void) { return looks; }

// Copies and fills. Up to 1 MiB they are real, so that a value sent to the card and read back is the same value; beyond
// that, and beyond the budget of memory.c, nothing is stored on the card, and reading it gives zeros.
#include "card.h"

#include <string.h>
#include <sys/mman.h>

// Zeros, giving whole pages back to the system where that is the same.
static void clear(void *p, size_t n) {
  if (n <= TINY_COPY || !owns_pages(p) || (n <= SMALL_COPY && !is_untouched(p, n))) {
    memset(p, 0, n);
    return;
  }
  uintptr_t begin = (uintptr_t)p, end = begin + n;
  uintptr_t first_page = ROUND_UP(begin, HOST_PAGE), last_page = end & ~(HOST_PAGE - 1);
  if (n > SMALL_COPY) forget_stored(p, n);
  memset(p, 0, first_page - begin);
  madvise((void *)first_page, last_page - first_page, MADV_DONTNEED);
  memset((void *)last_page, 0, end - last_page);
}

// ---- answers --------------------------------------------------------------------------------------------------------
// Who runs operators in place of the card may know what an operator's CUDA code is about to read: the number of
// elements that nonzero found, say. The next integers that this thread reads from the card are those given here.
#define MAX_ANSWERS 64
static _Thread_local struct {
  int64_t value[MAX_ANSWERS];
  int from, to;
} answers;
EXPORT void dryfit_answer(int64_t value) {
  if (answers.from == answers.to) answers.from = answers.to = 0;
  if (answers.to < MAX_ANSWERS) answers.value[answers.to++] = value;
}
EXPORT void dryfit_forget(void) { answers.from = answers.to = 0; }

static bool answered(void *to, size_t n) {
  if (answers.from == answers.to || (n != 4 && n != 8)) return false;
  memcpy(to, &answers.value[answers.from++], n);   // little-endian, as every host of these cards is
  return true;
}

// ---- copies ---------------------------------------------------------------------------------------------------------
static bool all_zeros(const char *p, size_t n) { return !*p && !memcmp(p, p + 1, n - 1); }

// Copies zeros without taking memory for them, if zeros are all there is to copy: activations that are moved to pinned
// memory and back, of which a deep model has thousands, would fill the host otherwise.
static bool moved_zeros(void *to, const void *from, size_t n) {
  if (n <= TINY_COPY || n > SMALL_COPY || !owns_pages(to) || !owns_pages(from) || !all_zeros(from, n)) return false;
  if (is_untouched(to, n)) clear(to, n);
  else if (!all_zeros(to, n)) memset(to, 0, n);   // not where pages were only read: writing would take memory
  return true;
}

int copy_bytes(void *to, const void *from, size_t n) {
  bool from_card = is_device(from), to_card = is_device(to);
  if (from_card && !to_card && answered(to, n)) return OK;
  if (from_card != to_card && moved_zeros(to, from, n)) return OK;
  bool real = n <= TINY_COPY || (n <= SMALL_COPY && (!to_card || may_store(to, n)));
  if (real || (!from_card && !to_card)) memmove(to, from, n);
  else clear(to, n);
  return OK;
}

static int copy_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height) {
  bool stored = width * height <= SMALL_COPY || (!is_device(to) && !is_device(from));
  if (stored && is_device(to) && width * height > TINY_COPY) stored = may_store(to, width * height);
  for (size_t row = 0; row < height; row++) {
    void *target = (char *)to + row * to_pitch;
    if (stored) copy_bytes(target, (const char *)from + row * from_pitch, width);
    else if (!is_device(to) || width > SMALL_COPY || !is_untouched(target, width)) clear(target, width);
  }
  return OK;
}

int fill_bytes(void *to, unsigned char value, size_t n) {
  if (is_device(to) && n > TINY_COPY && (!value || n > SMALL_COPY || !may_store(to, n))) clear(to, n);
  else memset(to, value, n);
  return OK;
}

int fill_words(void *to, uint32_t value, size_t n) {
  if (!value || n > SMALL_COPY / sizeof value) return fill_bytes(to, 0, n * sizeof value);
  for (size_t i = 0; i < n; i++) memcpy((char *)to + i * sizeof value, &value, sizeof value);
  return OK;
}

EXPORT int cudaMemset(void *to, int value, size_t n) { return fill_bytes(to, (unsigned char)value, n); }
EXPORT int cudaMemsetAsync(void *to, int value, size_t n, void *stream) {
  return fill_bytes(to, (unsigned char)value, n);
}
EXPORT int cudaMemcpy(void *to, const void *from, size_t n, int kind) { return copy_bytes(to, from, n); }
EXPORT int cudaMemcpyAsync(void *to, const void *from, size_t n, int kind, void *stream) {
  return copy_bytes(to, from, n);
}
EXPORT int cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t n) {
  return copy_bytes(to, from, n);
}
EXPORT int cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t n, void *stream) {
  return copy_bytes(to, from, n);
}
EXPORT int cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                        int kind) {
  return copy_rows(to, to_pitch, from, from_pitch, width, height);
}
EXPORT int cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                             size_t height, int kind, void *stream) {
  return copy_rows(to, to_pitch, from, from_pitch, width, height);
}

// A symbol of a kernel's module: one address for all, since nobody computes with it.
EXPORT int cudaGetSymbolAddress(void **out, const void *symbol) {
  lock_card();
  *out = (void *)first_address();
  unlock_card();
  return OK;
}

// The host's random numbers, passed over: weights that a rehearsal leaves undrawn (rehearse/inside/light_init.py) leave
// PyTorch's CPU generator where drawing them would have. No business of the card's, but too much of a loop for Python.
#include "card.h"

// MT19937 (Matsumoto and Nishimura, 1998).
#define WORDS 624
#define MIDDLE 397
#define TWIST 0x9908b0dfu
#define UPPER_BIT 0x80000000u

// How a CPU generator's `get_state` begins.
typedef struct {
  uint64_t seed;
  int32_t left;   // 1 more than the words that have not been used
  int32_t seeded;
  uint64_t next;
  uint64_t words[WORDS];
} generator_state;

static inline uint32_t twisted(uint32_t one, uint32_t following) {
  return ((one & UPPER_BIT) | (following & ~UPPER_BIT)) >> 1 ^ (-(following & 1u) & TWIST);
}

// GCC makes a loop several times as fast where the processor has AVX2, if it may look for one.
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__)
__attribute__((optimize("O3"), target_clones("avx2", "default")))
#endif
static void make_new_words(uint32_t words[WORDS]) {
  size_t i = 0;
  for (; i < WORDS - MIDDLE; i++) words[i] = words[i + MIDDLE] ^ twisted(words[i], words[i + 1]);
  for (; i < WORDS - 1; i++) words[i] = words[i + MIDDLE - WORDS] ^ twisted(words[i], words[i + 1]);
  words[i] = words[MIDDLE - 1] ^ twisted(words[i], words[0]);
}

EXPORT void dryfit_pass_over_random_words(generator_state *state, size_t count) {
  size_t unused = (size_t)state->left - 1;
  if (count <= unused) {
    state->left -= (int32_t)count;
    state->next += count;
    return;
  }
  count -= unused;
  uint32_t words[WORDS];
  for (size_t i = 0; i < WORDS; i++) words[i] = (uint32_t)state->words[i];
  for (; count > WORDS; count -= WORDS) make_new_words(words);
  make_new_words(words);
  for (size_t i = 0; i < WORDS; i++) state->words[i] = words[i];
  state->left = (int32_t)(WORDS + 1 - count);
  state->next = count;
}

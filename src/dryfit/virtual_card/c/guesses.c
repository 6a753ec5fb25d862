// How far off the sizes may be that stand for those of NVIDIA's libraries, where nobody can be asked without a card.
#include "card.h"
#include "guesses.h"

#include <pthread.h>
#include <string.h>

enum { MOST_HELD = 4096 };
typedef struct {
  uintptr_t address;
  size_t size, less, more;
} Held;
typedef struct {
  size_t calls, call_less, call_more;   // of calls, the most
  size_t held_less, held_more;          // of memory that was held at a time, the most
  Held held[MOST_HELD];
  int count;
} Doubt;
static Doubt doubts[GUESSED_KINDS];
static pthread_mutex_t guessing = PTHREAD_MUTEX_INITIALIZER;

static void keep_larger(size_t *most, size_t bytes) {
  if (bytes > *most) *most = bytes;
}

size_t guess_for_a_call(Guessed kind, Guess guess) {
  pthread_mutex_lock(&guessing);
  doubts[kind].calls++;
  keep_larger(&doubts[kind].call_less, guess.expected - guess.low);
  keep_larger(&doubts[kind].call_more, guess.high - guess.expected);
  pthread_mutex_unlock(&guessing);
  return guess.expected;
}

// What lies there now shows that the program has let go of what lay there before.
static void drop_overlapping(Doubt *doubt, uintptr_t address, size_t size) {
  for (int i = doubt->count; i-- > 0;) {
    const Held *held = &doubt->held[i];
    if (held->address < address + size && address < held->address + held->size) doubt->held[i] = doubt->held[--doubt->count];
  }
}

void hold_guess(Guessed kind, const void *address, size_t size, Guess guess) {
  if (!address) return;
  pthread_mutex_lock(&guessing);
  Doubt *doubt = &doubts[kind];
  drop_overlapping(doubt, (uintptr_t)address, size ? size : 1);
  if (doubt->count < MOST_HELD)
    doubt->held[doubt->count++] = (Held){
        .address = (uintptr_t)address,
        .size = size ? size : 1,
        .less = guess.expected - guess.low,
        .more = guess.high - guess.expected,
    };
  size_t less = 0, more = 0;
  for (int i = 0; i < doubt->count; i++) {
    less += doubt->held[i].less;
    more += doubt->held[i].more;
  }
  keep_larger(&doubt->held_less, less);
  keep_larger(&doubt->held_more, more);
  pthread_mutex_unlock(&guessing);
}

void let_guess_go(Guessed kind, const void *address) {
  if (!address) return;
  pthread_mutex_lock(&guessing);
  drop_overlapping(&doubts[kind], (uintptr_t)address, 1);
  pthread_mutex_unlock(&guessing);
}

// Of the i-th kind: its calls, and by how many bytes the peak of tensors may be lower and higher, at most; its name, or
// NULL past the last one.
EXPORT const char *dryfit_guessed(int i, size_t found[3]) {
  static const char *const names[GUESSED_KINDS] = {
      [RECURRENT] = "recurrent networks", [BATCH_NORM] = "batch normalisation", [CTC_LOSS] = "CTC loss",
      [DROPOUT_STATES] = "dropout states", [FOURIER] = "Fourier transforms",
  };
  if (i < 0 || i >= GUESSED_KINDS) return NULL;
  pthread_mutex_lock(&guessing);
  const Doubt *doubt = &doubts[i];
  found[0] = doubt->calls;
  found[1] = doubt->call_less + doubt->held_less;
  found[2] = doubt->call_more + doubt->held_more;
  pthread_mutex_unlock(&guessing);
  return names[i];
}

// guesses.c: memory of NVIDIA's libraries whose size nobody can be asked for without a card, so that it is a range.
#ifndef DRYFIT_GUESSES_H
#define DRYFIT_GUESSES_H

#include <stddef.h>

typedef enum { RECURRENT, BATCH_NORM, CTC_LOSS, DROPOUT_STATES, FOURIER, GUESSED_KINDS } Guessed;

typedef struct {
  size_t low, expected, high;   // bytes
} Guess;

// What the library is made to answer: the expected size. The range counts for the length of a call.
size_t guess_for_a_call(Guessed kind, Guess guess);
// The range counts until the memory at this address is let go, or is held anew; `size` are the bytes there.
void hold_guess(Guessed kind, const void *address, size_t size, Guess guess);
void let_guess_go(Guessed kind, const void *address);

#endif

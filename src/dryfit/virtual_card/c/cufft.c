// cuFFT: the work areas of its plans, which torch allocates for each call.
#include "card.h"
#include "guesses.h"

// NVIDIA says only that some sizes need much more than others, and large primes up to eight times what a similar power of
// two does (cuFFT's documentation, "cuFFT Estimate"). A transform that is not done in place in one pass needs room for
// all its complex values, which is expected; none is the least.
static bool has_small_factors(long long n) {
  static const int factors[] = {2, 3, 5, 7};
  for (size_t i = 0; i < sizeof factors / sizeof *factors; i++)
    while (n > 1 && n % factors[i] == 0) n /= factors[i];
  return n <= 1;
}
static size_t complex_bytes(int type) {   // cudaDataType: 0 and 4 are floats, 1 and 5 doubles, 2 and 6 halves
  return type == 1 || type == 5 ? 16 : type == 2 || type == 6 ? 4 : 8;
}
EXPORT int cufftXtMakePlanMany(int plan, int rank, const long long *n, void *in, long long in_stride,
                               long long in_distance, int in_type, void *out, long long out_stride,
                               long long out_distance, int out_type, long long batch, size_t *work_bytes, int type) {
  size_t elements = (size_t)batch, factor = 1;
  for (int i = 0; i < rank; i++) {
    elements *= (size_t)n[i];
    if (!has_small_factors(n[i])) factor = 8;
  }
  size_t bytes = elements * complex_bytes(type);
  size_t expected = guess_for_a_call(FOURIER, (Guess){.low = 0, .expected = bytes, .high = factor * bytes});
  if (work_bytes) *work_bytes = expected;
  return OK;
}

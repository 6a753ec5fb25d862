// What NCCL computes of the values that ranks bring, element by element.
#include "card.h"
#include "reductions.h"

#include <string.h>

const size_t type_bytes[TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

enum { SUM, PRODUCT, MAXIMUM, MINIMUM, AVERAGE, FIRST_CUSTOM };   // ncclRedOp_t
#define MAX_CUSTOM 64
static double custom_scale[MAX_CUSTOM];
static _Atomic unsigned customs;

static float half_to_float(uint16_t h, int type) {
  uint32_t bits;
  if (type == BFLOAT16) {
    bits = (uint32_t)h << 16;
  } else {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3ff;
    if (exponent == 0) {
      float small = (float)fraction / 16777216.0f;   // a subnormal counts in units of 2^-24
      return sign ? -small : small;
    }
    bits = sign | (exponent == 31 ? 0x7f800000 : (exponent + 112) << 23) | fraction << 13;
  }
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}
static uint16_t float_to_half(float f, int type) {   // to nearest, ties to even
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  if (type == BFLOAT16) return f != f ? 0x7fc0 : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  uint16_t sign = bits >> 16 & 0x8000;
  float size = f < 0 ? -f : f;
  if (f != f) return sign | 0x7e00;
  if (size >= 65520) return sign | 0x7c00;
  if (size < 6.103515625e-05f) {   // below the smallest normal number
    float units = size * 16777216.0f;
    uint16_t whole = (uint16_t)units;
    float rest = units - (float)whole;
    return sign | (uint16_t)(whole + (rest > 0.5f || (rest == 0.5f && (whole & 1))));
  }
  uint32_t magnitude = (bits & 0x7fffffff) - (112u << 23);
  return sign | (uint16_t)((magnitude + 0xfff + (magnitude >> 13 & 1)) >> 13);
}

#define COMBINE(type, v, w)                  \
  (op == PRODUCT   ? (type)((v) * (w))       \
   : op == MAXIMUM ? ((w) > (v) ? (w) : (v)) \
   : op == MINIMUM ? ((w) < (v) ? (w) : (v)) \
                   : (type)((v) + (w)))
#define REDUCE(type)                                                 \
  for (size_t i = 0; i < n; i++) {                                   \
    type v, w;                                                       \
    memcpy(&v, own + i * sizeof v, sizeof v);                        \
    for (int r = 1; r < apart; r++) {                                \
      memcpy(&w, own + (size_t)r * stride + i * sizeof w, sizeof w); \
      v = COMBINE(type, v, w);                                       \
    }                                                                \
    if (apart < ranks) v = (type)(v * (type)ranks);                  \
    if (op == AVERAGE) v = (type)(v / ranks);                        \
    if (op >= FIRST_CUSTOM) v = (type)((double)v * scale);           \
    memcpy((char *)out + i * sizeof v, &v, sizeof v);                \
  }
static void reduce_half(const char *own, size_t stride, char *out, size_t n, int type, int op, int ranks, int apart,
                        double scale) {
  for (size_t i = 0; i < n; i++) {
    float v = 0, w;
    for (int r = 0; r < apart; r++) {
      uint16_t h;
      memcpy(&h, own + (size_t)r * stride + i * sizeof h, sizeof h);
      w = half_to_float(h, type);
      v = r == 0 ? w : COMBINE(float, v, w);
    }
    if (apart < ranks) v *= (float)ranks;
    if (op == AVERAGE) v /= (float)ranks;
    if (op >= FIRST_CUSTOM) v = (float)((double)v * scale);
    uint16_t h = float_to_half(v, type);
    memcpy(out + i * sizeof h, &h, sizeof h);
  }
}
static bool all_zeros(const char *p, size_t n) { return !n || (!*p && !memcmp(p, p + 1, n - 1)); }
void reduce(const char *own, size_t stride, void *out, size_t n, int type, int op, int ranks) {
  size_t bytes = n * type_bytes[type];
  bool equal = !stride, sums = op != MAXIMUM && op != MINIMUM;
  bool keeps = !sums || (op == AVERAGE && type >= FLOAT16);   // a sum of integers may have overflowed before
  if (equal && (keeps || all_zeros(own, bytes))) {   // zeros that nobody wrote take no memory, and should go on so
    if (out != own) copy_bytes(out, own, bytes);
    return;
  }
  int apart = equal && op != PRODUCT ? 1 : ranks;   // what each rank brought alike is multiplied
  double scale = op >= FIRST_CUSTOM ? custom_scale[(op - FIRST_CUSTOM) % MAX_CUSTOM] : 1;
  switch (type) {
    case INT8: REDUCE(int8_t) break;
    case UINT8: REDUCE(uint8_t) break;
    case INT32: REDUCE(int32_t) break;
    case UINT32: REDUCE(uint32_t) break;
    case INT64: REDUCE(int64_t) break;
    case UINT64: REDUCE(uint64_t) break;
    case FLOAT32: REDUCE(float) break;
    case FLOAT64: REDUCE(double) break;
    case FLOAT16:
    case BFLOAT16: reduce_half(own, stride, out, n, type, op, ranks, apart, scale); break;
    default: memmove(out, own, bytes);   // 8-bit floats: rank 0's values
  }
}
EXPORT int ncclRedOpCreatePreMulSum(int *op, const void *scalar, int type, int residence, void *comm) {
  double scale = 1;
  if (type == FLOAT64) memcpy(&scale, scalar, sizeof scale);
  if (type == FLOAT32) {
    float f;
    memcpy(&f, scalar, sizeof f);
    scale = (double)f;
  }
  if (type == FLOAT16 || type == BFLOAT16) {
    uint16_t h;
    memcpy(&h, scalar, sizeof h);
    scale = (double)half_to_float(h, type);
  }
  unsigned mine = customs++ % MAX_CUSTOM;
  custom_scale[mine] = scale;
  *op = FIRST_CUSTOM + (int)mine;
  return OK;
}

// What NCCL computes of the values that ranks bring.
#ifndef DRYFIT_REDUCTIONS_H
#define DRYFIT_REDUCTIONS_H

#include <stddef.h>

enum {   // ncclDataType_t
  INT8,
  UINT8,
  INT32,
  UINT32,
  INT64,
  UINT64,
  FLOAT16,
  FLOAT32,
  FLOAT64,
  BFLOAT16,
  FLOAT8_E4M3,
  FLOAT8_E5M2,
  TYPES
};
extern const size_t type_bytes[TYPES];

// Write what comes of `n` elements of each rank. Those of rank 0 are at `own`, and each other rank's so many bytes after
// those of the one before; with 0 bytes between them all ranks have brought the same.
void reduce(const char *own, size_t stride, void *out, size_t n, int type, int op, int ranks);

#endif

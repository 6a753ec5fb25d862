// cudnn*.c: descriptors, and types as cudnnDataType_t numbers them.
#ifndef DRYFIT_CUDNN_H
#define DRYFIT_CUDNN_H

#include <stddef.h>

enum { FLOAT, DOUBLE, HALF, INT8, BFLOAT16 = 9 };   // cudnnDataType_t
enum { MAX_DIMS = 8 };
typedef struct {
  int type, dims, size[MAX_DIMS], stride[MAX_DIMS];
} Tensor;   // filters too
typedef struct {
  float probability;
} Dropout;

size_t width_of(int type);   // bytes
size_t elements_of(const Tensor *d);
int make_descriptor(void **descriptor, size_t size);
int destroy_descriptor(void *descriptor);
int cudnnSetTensorNdDescriptor(Tensor *d, int type, int dims, const int *size, const int *stride);

#endif

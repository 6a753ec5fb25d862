// Kernels: launching one is a plain success (names.txt); here is what is asked about them before.
#include "card.h"

#include <string.h>

typedef struct {
  unsigned x, y, z;
} Dim3;
static _Thread_local struct {
  Dim3 grid, block;
  size_t shared_bytes;
  void *stream;
} configuration;   // between `<<<...>>>` and the launch itself

EXPORT unsigned __cudaPushCallConfiguration(Dim3 grid, Dim3 block, size_t shared_bytes, void *stream) {
  configuration.grid = grid;
  configuration.block = block;
  configuration.shared_bytes = shared_bytes;
  configuration.stream = stream;
  return OK;
}
EXPORT int __cudaPopCallConfiguration(Dim3 *grid, Dim3 *block, size_t *shared_bytes, void **stream) {
  *grid = configuration.grid;
  *block = configuration.block;
  *shared_bytes = configuration.shared_bytes;
  *stream = configuration.stream;
  return OK;
}

EXPORT void **__cudaRegisterFatBinary(void *binary) {
  static void *module;
  return &module;
}
static int same(void **kernel, const void *function) {
  *kernel = (void *)(uintptr_t)function;
  return OK;
}
EXPORT int __cudaGetKernel(void **kernel, const void *function) { return same(kernel, function); }
EXPORT int cudaGetKernel(void **kernel, const void *function) { return same(kernel, function); }
EXPORT int cudaGetFuncBySymbol(void **kernel, const void *function) { return same(kernel, function); }

// Compiled code is not looked into: every kernel has these, which leave its launch as its author planned it.
enum { KERNEL_THREADS = 1024, KERNEL_REGISTERS = 32 };

// For which capability a kernel was compiled: PyTorch's releases have these, and a card runs the newest that it can.
// CUB looks its tuning up by this number, and fails where its library was not compiled for it.
static int compiled_for(void) {
  static const int built[] = {50, 60, 70, 75, 80, 86, 90, 100, 120};
  int newest = built[0];
  for (size_t i = 0; i < sizeof built / sizeof *built; i++)
    if (built[i] <= card()->sm) newest = built[i];
  return newest;
}
EXPORT int cudaFuncGetAttributes(void *out, const void *function) {
  struct {
    size_t shared_bytes, constant_bytes, local_bytes;
    int threads, registers, ptx_version, binary_version, cache_mode, dynamic_shared_bytes;
    char rest[96];
  } attributes = {.threads = KERNEL_THREADS, .registers = KERNEL_REGISTERS, .dynamic_shared_bytes = 48 * (int)KIB};
  attributes.ptx_version = attributes.binary_version = compiled_for();
  _Static_assert(sizeof attributes == 144, "cudaFuncAttributes has 144 bytes in CUDA 12 and 13");
  memcpy(out, &attributes, sizeof attributes);
  return OK;
}
EXPORT int cuFuncGetAttribute(int *value, int attribute, void *function) {
  enum { MAX_THREADS_PER_BLOCK = 0, NUM_REGS = 4, PTX_VERSION = 5, BINARY_VERSION = 6 };
  switch (attribute) {
    case MAX_THREADS_PER_BLOCK: *value = KERNEL_THREADS; break;
    case NUM_REGS: *value = KERNEL_REGISTERS; break;
    case PTX_VERSION:
    case BINARY_VERSION: *value = compiled_for(); break;
    default: *value = 0;
  }
  return OK;
}

int active_blocks(int *blocks, int block_threads) {
  *blocks = block_threads > 0 && block_threads < card()->threads_per_sm ? card()->threads_per_sm / block_threads : 1;
  return OK;
}
EXPORT int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads,
                                                         size_t shared) {
  return active_blocks(blocks, threads);
}
EXPORT int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function, int threads,
                                                                  size_t shared, unsigned flags) {
  return active_blocks(blocks, threads);
}
EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads, size_t shared) {
  return active_blocks(blocks, threads);
}
EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, void *function, int threads, size_t shared,
                                                                unsigned flags) {
  return active_blocks(blocks, threads);
}
static int one(int *clusters) {
  *clusters = 1;
  return OK;
}
EXPORT int cudaOccupancyMaxActiveClusters(int *clusters, const void *function, const void *launch) {
  return one(clusters);
}
EXPORT int cuOccupancyMaxActiveClusters(int *clusters, void *function, const void *launch) { return one(clusters); }
EXPORT int cudaOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, const void *function, int blocks, int threads) {
  *bytes = 48 * KIB;
  return OK;
}

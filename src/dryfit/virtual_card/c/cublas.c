// cuBLAS and cuBLASLt: their workspaces come from PyTorch's own allocator; here are versions and plans.
#include "card.h"

#include <stdatomic.h>
#include <string.h>

// The memory that was given to these libraries to work in, each address and size once; more than this many is not known.
enum { MOST_WORKSPACES = 256 };
static struct { uintptr_t address; size_t size; } workspaces[MOST_WORKSPACES];
static _Atomic int workspaces_known;

static void remember_workspace(const void *address, size_t size) {
  if (!address || !size) return;
  int known = atomic_load(&workspaces_known);
  for (int i = known; i-- > 0;)
    if (workspaces[i].address == (uintptr_t)address && workspaces[i].size == size) return;
  lock_card();
  known = atomic_load(&workspaces_known);
  if (known < MOST_WORKSPACES) {
    workspaces[known].address = (uintptr_t)address;
    workspaces[known].size = size;
    atomic_store(&workspaces_known, known + 1);
  }
  unlock_card();
}

// The i-th of them: its size, and its address; 0 past the last one.
EXPORT size_t dryfit_workspaces(size_t i, uintptr_t *address) {
  if (i >= (size_t)atomic_load(&workspaces_known)) return 0;
  *address = workspaces[i].address;
  return workspaces[i].size;
}

EXPORT int cublasSetWorkspace_v2(void *handle, void *workspace, size_t size) {
  remember_workspace(workspace, size);
  return OK;
}
EXPORT int cublasLtMatmul(void *handle, void *operation, const void *alpha, const void *a, void *a_layout,
                          const void *b, void *b_layout, const void *beta, const void *c, void *c_layout, void *d,
                          void *d_layout, const void *algorithm, void *workspace, size_t size, void *stream) {
  remember_workspace(workspace, size);
  return OK;
}

EXPORT int cublasLtMatmulAlgoGetHeuristic(void *handle, void *operation, void *a, void *b, void *c, void *d,
                                          void *preference, int wanted, void *results, int *found) {
  enum { RESULT_BYTES = 96 };   // cublasLtMatmulHeuristicResult_t: algorithm, workspace, state, waves, reserved
  *found = results && wanted > 0;
  if (*found) memset(results, 0, RESULT_BYTES);
  return OK;
}
EXPORT size_t cublasLtGetVersion(void) {
  const char *library = card()->cuda == 12 ? "libcublasLt.so.12" : "libcublasLt.so.13";
  size_t (*real)(void) = (size_t (*)(void))function_of(library, "cublasLtGetVersion");
  return real && real != cublasLtGetVersion ? real() : (size_t)card()->cuda * 10000;
}
EXPORT int cublasGetVersion_v2(void *handle, int *version) {
  *version = (int)cublasLtGetVersion();
  return OK;
}
EXPORT int cublasGetStream_v2(void *handle, void **stream) {
  *stream = NULL;
  return OK;
}
EXPORT const char *cublasGetStatusString(int status) { return status ? "virtual cuBLAS: failed" : "success"; }
EXPORT const char *cublasGetStatusName(int status) { return status ? "CUBLAS_STATUS_FAILED" : "CUBLAS_STATUS_SUCCESS"; }
EXPORT const char *cusparseGetErrorString(int status) { return status ? "virtual cuSPARSE: failed" : "success"; }

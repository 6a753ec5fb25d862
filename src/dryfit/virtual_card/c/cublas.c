// cuBLAS and cuBLASLt: their workspaces come from PyTorch's own allocator; here are versions and plans.
#include "card.h"

#include <string.h>

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

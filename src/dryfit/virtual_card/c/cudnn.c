// cuDNN: versions, descriptors, batch normalisation, dropout and CTC loss. Recurrent networks are in cudnn_recurrent.c,
// the graph interface (convolutions, attention) in cudnn_plans.c.
#include "card.h"
#include "cudnn.h"
#include "guesses.h"

#include <stdlib.h>
#include <string.h>

EXPORT size_t cudnnGetVersion(void) { return (size_t)card()->cudnn; }
EXPORT int cudnnGetProperty(int property, int *value) {
  int version = card()->cudnn, major = version >= 90000 ? version / 10000 : version / 1000;
  int rest = version % (version >= 90000 ? 10000 : 1000);
  *value = property == 0 ? major : property == 1 ? rest / 100 : rest % 100;
  return OK;
}
EXPORT size_t cudnnGetCudartVersion(void) { return (size_t)card()->cuda * 1000; }
EXPORT const char *cudnnGetErrorString(int status) {
  return status ? "CUDNN_STATUS: virtual cuDNN failed" : "CUDNN_STATUS_SUCCESS";
}

// ---- descriptors ----------------------------------------------------------------------------------------------------
size_t width_of(int type) {
  return type == DOUBLE ? 8 : type == HALF || type == BFLOAT16 ? 2 : type == INT8 ? 1 : 4;
}
size_t elements_of(const Tensor *d) {
  size_t elements = 1;
  for (int i = 0; i < d->dims && i < MAX_DIMS; i++) elements *= (size_t)d->size[i];
  return elements;
}
int make_descriptor(void **descriptor, size_t size) {
  enum { CUDNN_STATUS_ALLOC_FAILED = 4003 };
  *descriptor = calloc(1, size);
  return *descriptor ? OK : CUDNN_STATUS_ALLOC_FAILED;
}
int destroy_descriptor(void *descriptor) {
  free(descriptor);
  return OK;
}
EXPORT int cudnnCreateTensorDescriptor(void **d) { return make_descriptor(d, sizeof(Tensor)); }
EXPORT int cudnnCreateFilterDescriptor(void **d) { return make_descriptor(d, sizeof(Tensor)); }
EXPORT int cudnnDestroyTensorDescriptor(void *d) { return destroy_descriptor(d); }
EXPORT int cudnnDestroyFilterDescriptor(void *d) { return destroy_descriptor(d); }

EXPORT int cudnnSetTensorNdDescriptor(Tensor *d, int type, int dims, const int *size, const int *stride) {
  d->type = type;
  d->dims = dims;
  for (int i = 0; i < dims && i < MAX_DIMS; i++) {
    d->size[i] = size[i];
    d->stride[i] = stride ? stride[i] : 0;
  }
  return OK;
}
EXPORT int cudnnSetFilterNdDescriptor(Tensor *d, int type, int format, int dims, const int *size) {
  return cudnnSetTensorNdDescriptor(d, type, dims, size, NULL);
}
EXPORT int cudnnGetTensorNdDescriptor(const Tensor *d, int wanted, int *type, int *dims, int *size, int *stride) {
  *type = d->type;
  *dims = d->dims;
  for (int i = 0; i < wanted && i < MAX_DIMS; i++) {
    size[i] = i < d->dims ? d->size[i] : 1;
    if (stride) stride[i] = i < d->dims ? d->stride[i] : 1;
  }
  return OK;
}
EXPORT int cudnnGetFilterNdDescriptor(const Tensor *d, int wanted, int *type, int *format, int *dims, int *size) {
  *format = 0;
  return cudnnGetTensorNdDescriptor(d, wanted, type, dims, size, NULL);
}

// ---- batch normalisation --------------------------------------------------------------------------------------------
// A recording of fp32 NCHW training on a card shows no workspace and no reserve. For channels-last torch asks for the
// persistent kernels. Their backward pass needs the input and the saved statistics, which torch keeps itself, so a
// reserve is not needed; at most it is the bit for each element that the same functions keep of an activation. Their
// workspace is for sums over the blocks of a launch, two floats for each of 64 channels, and one or two blocks run on a
// multiprocessor; up to four times that is allowed for.
enum { SPATIAL_PERSISTENT = 2, CHANNELS_OF_A_BLOCK = 64 };

static int batch_norm_workspace(int mode, size_t *bytes) {
  size_t sums = (size_t)card()->sms * CHANNELS_OF_A_BLOCK * 2 * sizeof(float);
  Guess guess = {.low = 0, .expected = sums, .high = 4 * sums};
  *bytes = mode == SPATIAL_PERSISTENT ? guess_for_a_call(BATCH_NORM, guess) : 0;
  return OK;
}
EXPORT int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void *handle, int mode, int ops, void *x, void *z,
                                                                    void *y, void *scale, void *activation,
                                                                    size_t *bytes) {
  return batch_norm_workspace(mode, bytes);
}
EXPORT int cudnnGetBatchNormalizationBackwardExWorkspaceSize(void *handle, int mode, int ops, void *x, void *y,
                                                             void *dy, void *dz, void *dx, void *scale,
                                                             void *activation, size_t *bytes) {
  return batch_norm_workspace(mode, bytes);
}
EXPORT int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void *handle, int mode, int ops, void *activation,
                                                                void *x, size_t *bytes) {
  *bytes = 0;
  return OK;
}
// A reserve would live as long as the input that is kept for the backward pass, and there is none to know it by.
EXPORT int cudnnBatchNormalizationForwardTrainingEx(void *handle, int mode, int ops, void *alpha, void *beta,
                                                    const Tensor *x, void *x_at, void *z, void *z_at, void *y,
                                                    void *y_at, void *of_scale, void *scale, void *bias, double factor,
                                                    void *mean, void *variance, double epsilon, void *saved_mean,
                                                    void *saved_variance, void *activation, void *workspace,
                                                    size_t workspace_bytes, void *reserve, size_t reserve_bytes) {
  size_t elements = elements_of(x);
  Guess guess = {.low = 0, .expected = 0, .high = elements / 8};
  if (mode == SPATIAL_PERSISTENT) hold_guess(BATCH_NORM, x_at, elements * width_of(x->type), guess);
  return OK;
}
EXPORT int cudnnBatchNormalizationBackwardEx(void *handle, int mode, int ops, void *alpha, void *beta, void *alpha_of,
                                             void *beta_of, void *x, void *x_at) {
  let_guess_go(BATCH_NORM, x_at);
  return OK;
}

// ---- dropout --------------------------------------------------------------------------------------------------------
// Recurrent networks with dropout keep states of cuDNN's random numbers: a few MiB, they say. That is one of cuRAND's
// XORWOW states, 48 bytes, for each thread that the card can run at a time.
static Guess dropout_states(void) {
  enum { XORWOW_BYTES = 48 };
  size_t bytes = (size_t)card()->sms * (size_t)card()->threads_per_sm * XORWOW_BYTES;
  return (Guess){.low = 0, .expected = bytes, .high = 2 * bytes};
}
EXPORT int cudnnCreateDropoutDescriptor(void **d) { return make_descriptor(d, sizeof(Dropout)); }
EXPORT int cudnnDestroyDropoutDescriptor(void *d) { return destroy_descriptor(d); }
EXPORT int cudnnDropoutGetStatesSize(void *handle, size_t *bytes) {
  *bytes = dropout_states().expected;
  return OK;
}
EXPORT int cudnnSetDropoutDescriptor(Dropout *d, void *handle, float probability, void *states, size_t bytes,
                                     unsigned long long seed) {
  d->probability = probability;
  if (!states) return OK;
  guess_for_a_call(DROPOUT_STATES, (Guess){0});
  hold_guess(DROPOUT_STATES, states, bytes, dropout_states());
  return OK;
}
EXPORT int cudnnRestoreDropoutDescriptor(Dropout *d, void *handle, float probability, void *states, size_t bytes,
                                         unsigned long long seed) {
  d->probability = probability;
  return OK;
}

// ---- CTC loss -------------------------------------------------------------------------------------------------------
// The loss is a sum over all alignments: a row of 2 x labels + 1 sums for each step and sequence, forwards, and another
// backwards for the gradient. At most, the probabilities are kept besides, as floats.
typedef struct {
  int most_labels;
} Ctc;
enum { MOST_LABELS = 255 };   // of what cuDNN takes, where nothing says how many there are

static size_t ctc_workspace(const Tensor *probabilities, const void *gradients, int most_labels) {
  size_t steps_and_sequences = (size_t)probabilities->size[0] * (size_t)probabilities->size[1];
  size_t sums = steps_and_sequences * (2 * (size_t)most_labels + 1) * sizeof(float);
  size_t expected = gradients ? 2 * sums : sums;
  size_t high = expected + elements_of(probabilities) * sizeof(float);
  return guess_for_a_call(CTC_LOSS, (Guess){.low = sums, .expected = expected, .high = high});
}
EXPORT int cudnnCreateCTCLossDescriptor(void **d) { return make_descriptor(d, sizeof(Ctc)); }
EXPORT int cudnnDestroyCTCLossDescriptor(void *d) { return destroy_descriptor(d); }
EXPORT int cudnnSetCTCLossDescriptor_v8(Ctc *d, int type, int normalisation, int gradients, int most_labels) {
  d->most_labels = most_labels;
  return OK;
}
EXPORT int cudnnSetCTCLossDescriptor_v9(Ctc *d, int type, int normalisation, int gradients, int most_labels) {
  return cudnnSetCTCLossDescriptor_v8(d, type, normalisation, gradients, most_labels);
}
EXPORT int cudnnGetCTCLossWorkspaceSize(void *handle, const Tensor *probabilities, const void *gradients,
                                        const int *labels, const int *label_counts, const int *steps, int algorithm,
                                        void *d, size_t *bytes) {
  int most_labels = 0;
  for (int i = 0; i < probabilities->size[1]; i++)
    if (label_counts[i] > most_labels) most_labels = label_counts[i];
  *bytes = ctc_workspace(probabilities, gradients, most_labels);
  return OK;
}
EXPORT int cudnnGetCTCLossWorkspaceSize_v8(void *handle, int algorithm, const Ctc *d, const Tensor *probabilities,
                                           const void *gradients, size_t *bytes) {
  *bytes = ctc_workspace(probabilities, gradients, d->most_labels ? d->most_labels : MOST_LABELS);
  return OK;
}

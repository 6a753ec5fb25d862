// cuDNN: versions, batch normalisation, and recurrent networks, whose weights torch lays out by what cuDNN says. The
// graph interface (convolutions, attention) is in cudnn_plans.c.
#include "card.h"

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

// ---- batch normalisation --------------------------------------------------------------------------------------------
// A recording of fp32 NCHW training on a card shows no workspace and no reserve. The persistent kernels, which torch
// asks for when the layout is channels-last, have one of unknown size.
static int batch_norm_size(int mode, size_t *bytes) {
  enum { SPATIAL_PERSISTENT = 2 };
  if (mode == SPATIAL_PERSISTENT) UNFAITHFUL("cudnnBatchNormalization(SPATIAL_PERSISTENT)");
  *bytes = 0;
  return OK;
}
EXPORT int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void *handle, int mode, int ops, void *x, void *z,
                                                                    void *y, void *scale, void *activation,
                                                                    size_t *bytes) {
  return batch_norm_size(mode, bytes);
}
EXPORT int cudnnGetBatchNormalizationBackwardExWorkspaceSize(void *handle, int mode, int ops, void *x, void *y,
                                                             void *dy, void *dz, void *dx, void *scale,
                                                             void *activation, size_t *bytes) {
  return batch_norm_size(mode, bytes);
}
EXPORT int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void *handle, int mode, int ops, void *activation,
                                                                void *x, size_t *bytes) {
  return batch_norm_size(mode, bytes);
}

// ---- descriptors ----------------------------------------------------------------------------------------------------
#define MAX_DIMS 8
typedef struct {
  int type, dims, size[MAX_DIMS], stride[MAX_DIMS];
} Tensor;   // filters too
typedef struct {
  int cell, bias, directions, type, input, hidden, output, layers;
} Rnn;
typedef struct {
  int steps, batch, width;
} Sequence;

static int make(void **descriptor, size_t size) {
  enum { CUDNN_STATUS_ALLOC_FAILED = 4003 };
  *descriptor = calloc(1, size);
  return *descriptor ? OK : CUDNN_STATUS_ALLOC_FAILED;
}
static int destroy(void *descriptor) {
  free(descriptor);
  return OK;
}
EXPORT int cudnnCreateTensorDescriptor(void **d) { return make(d, sizeof(Tensor)); }
EXPORT int cudnnCreateFilterDescriptor(void **d) { return make(d, sizeof(Tensor)); }
EXPORT int cudnnCreateRNNDescriptor(void **d) { return make(d, sizeof(Rnn)); }
EXPORT int cudnnCreateRNNDataDescriptor(void **d) { return make(d, sizeof(Sequence)); }
EXPORT int cudnnDestroyTensorDescriptor(void *d) { return destroy(d); }
EXPORT int cudnnDestroyFilterDescriptor(void *d) { return destroy(d); }
EXPORT int cudnnDestroyRNNDescriptor(void *d) { return destroy(d); }
EXPORT int cudnnDestroyRNNDataDescriptor(void *d) { return destroy(d); }

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

// ---- recurrent networks ---------------------------------------------------------------------------------------------
enum { RNN_RELU, RNN_TANH, LSTM, GRU };                      // cudnnRNNMode_t
enum { NO_BIAS, INPUT_BIAS, DOUBLE_BIAS, RECURRENT_BIAS };   // cudnnRNNBiasMode_t
enum { FLOAT, DOUBLE, HALF, INT8, BFLOAT16 = 9 };            // cudnnDataType_t

static size_t width_of(int type) {
  return type == DOUBLE ? 8 : type == HALF || type == BFLOAT16 ? 2 : type == INT8 ? 1 : 4;
}
static size_t gates(const Rnn *r) { return r->cell == LSTM ? 4 : r->cell == GRU ? 3 : 1; }
static size_t biases(const Rnn *r) { return r->bias == NO_BIAS ? 0 : r->bias == DOUBLE_BIAS ? 2 : 1; }
static size_t hidden(const Rnn *r) { return (size_t)r->hidden; }
static size_t output(const Rnn *r) { return (size_t)r->output; }
static bool projects(const Rnn *r) { return r->output != r->hidden; }
// Layers are counted once per direction: "pseudo-layers".
static size_t inputs_of(const Rnn *r, int layer) {
  return layer < r->directions ? (size_t)r->input : output(r) * (size_t)r->directions;
}
static size_t matrix_elements(const Rnn *r, int layers) {   // in the matrices of the first so many
  size_t n = 0;
  for (int layer = 0; layer < layers; layer++)
    n += gates(r) * hidden(r) * (inputs_of(r, layer) + output(r)) + (projects(r) ? output(r) * hidden(r) : 0);
  return n;
}

EXPORT int cudnnSetRNNDescriptor_v8(Rnn *r, int algorithm, int cell, int bias, int direction, int input_mode, int type,
                                    int precision, int math, int input, int hidden_size, int output_size, int layers,
                                    void *dropout, unsigned flags) {
  *r = (Rnn){.cell = cell,
             .bias = bias,
             .directions = direction ? 2 : 1,
             .type = type,
             .input = input,
             .hidden = hidden_size,
             .output = output_size ? output_size : hidden_size,
             .layers = layers};
  return OK;
}
EXPORT int cudnnSetRNNDataDescriptor(Sequence *d, int type, int layout, int steps, int batch, int width,
                                     const int *lengths, void *fill) {
  *d = (Sequence){.steps = steps, .batch = batch, .width = width};
  return OK;
}
EXPORT int cudnnGetRNNWeightSpaceSize(void *handle, const Rnn *r, size_t *bytes) {
  int layers = r->layers * r->directions;
  *bytes = width_of(r->type) * (matrix_elements(r, layers) + (size_t)layers * biases(r) * gates(r) * hidden(r));
  return OK;
}

// Where matrix and bias number `id` of a layer lie: first the gates' input matrices, then the recurrent ones, then the
// projection; all layers' biases follow all layers' matrices.
EXPORT int cudnnGetRNNWeightParams(void *handle, const Rnn *r, int layer, size_t bytes, char *space, int id,
                                   Tensor *matrix, void **matrix_at, Tensor *bias, void **bias_at) {
  size_t n = (size_t)id, inputs = inputs_of(r, layer), begin = matrix_elements(r, layer);
  bool projection = n == 2 * gates(r), recurrent = n >= gates(r);
  size_t rows = projection ? output(r) : hidden(r);
  size_t columns = projection ? hidden(r) : recurrent ? output(r) : inputs;
  size_t recurrent_begin = begin + gates(r) * hidden(r) * inputs;
  size_t at = projection  ? recurrent_begin + gates(r) * hidden(r) * output(r)
              : recurrent ? recurrent_begin + (n - gates(r)) * rows * columns
                          : begin + n * rows * columns;
  bool has_matrix = !projection || projects(r);
  const int none[3] = {0}, matrix_size[3] = {1, (int)rows, (int)columns}, bias_size[3] = {1, r->hidden, 1};
  if (matrix) cudnnSetTensorNdDescriptor(matrix, r->type, has_matrix ? 3 : 0, matrix_size, none);
  if (matrix_at) *matrix_at = has_matrix ? space + width_of(r->type) * at : NULL;

  bool has_bias = !projection && (r->bias == DOUBLE_BIAS || r->bias == (recurrent ? RECURRENT_BIAS : INPUT_BIAS));
  size_t within = r->bias == DOUBLE_BIAS ? n : n % gates(r);
  size_t bias_begin = matrix_elements(r, r->layers * r->directions) + (size_t)layer * biases(r) * gates(r) * hidden(r);
  if (bias) cudnnSetTensorNdDescriptor(bias, r->type, has_bias ? 3 : 0, bias_size, none);
  if (bias_at) *bias_at = has_bias ? space + width_of(r->type) * (bias_begin + within * hidden(r)) : NULL;
  return OK;
}

// What training must keep of every step: the gates, the cell state (LSTM) or the reset product (GRU), and the output of
// each layer. cuDNN's own figure is at least this.
EXPORT int cudnnGetRNNTempSpaceSizes(void *handle, const Rnn *r, int training, const Sequence *x, size_t *workspace,
                                     size_t *reserve) {
  UNFAITHFUL("cudnnGetRNNTempSpaceSizes");
  size_t one = (size_t)x->steps * (size_t)x->batch * (size_t)r->directions * hidden(r) * width_of(r->type);
  size_t kept = gates(r) + (r->cell == LSTM || r->cell == GRU ? 2 : 1);
  if (workspace) *workspace = one * gates(r);
  if (reserve) *reserve = training ? one * (size_t)r->layers * kept : 0;
  return OK;
}

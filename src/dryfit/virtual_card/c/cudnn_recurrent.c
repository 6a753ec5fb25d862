// cuDNN's recurrent networks: their weights, which torch lays out by what cuDNN says, and the memory they work in.
#include "card.h"
#include "cudnn.h"
#include "guesses.h"

typedef struct {
  int cell, bias, directions, type, input, hidden, output, layers;
  bool drops;
} Rnn;
typedef struct {
  int type, steps, batch, width;
  size_t vectors;   // of all sequences, without padding
} Sequence;

enum { RNN_RELU, RNN_TANH, LSTM, GRU };                      // cudnnRNNMode_t
enum { NO_BIAS, INPUT_BIAS, DOUBLE_BIAS, RECURRENT_BIAS };   // cudnnRNNBiasMode_t

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

// ---- descriptors ----------------------------------------------------------------------------------------------------
EXPORT int cudnnCreateRNNDescriptor(void **d) { return make_descriptor(d, sizeof(Rnn)); }
EXPORT int cudnnDestroyRNNDescriptor(void *d) { return destroy_descriptor(d); }
EXPORT int cudnnCreateRNNDataDescriptor(void **d) { return make_descriptor(d, sizeof(Sequence)); }
EXPORT int cudnnDestroyRNNDataDescriptor(void *d) { return destroy_descriptor(d); }

EXPORT int cudnnSetRNNDescriptor_v8(Rnn *r, int algorithm, int cell, int bias, int direction, int input_mode, int type,
                                    int precision, int math, int input, int hidden_size, int output_size, int layers,
                                    const Dropout *dropout, unsigned flags) {
  *r = (Rnn){.cell = cell,
             .bias = bias,
             .directions = direction ? 2 : 1,
             .type = type,
             .input = input,
             .hidden = hidden_size,
             .output = output_size ? output_size : hidden_size,
             .layers = layers,
             .drops = dropout && dropout->probability > 0};
  return OK;
}
EXPORT int cudnnSetRNNDataDescriptor(Sequence *d, int type, int layout, int steps, int batch, int width,
                                     const int *lengths, void *fill) {
  *d = (Sequence){.type = type, .steps = steps, .batch = batch, .width = width};
  for (int i = 0; lengths && i < batch; i++) d->vectors += (size_t)lengths[i];
  return OK;
}

// ---- weights --------------------------------------------------------------------------------------------------------
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

// ---- what they work in ----------------------------------------------------------------------------------------------
// For the backward pass training keeps, of each layer and step, vectors as long as the hidden state, and what one layer
// hands to the next. Sizes seen on a card (P100, 2017, github.com/pytorch/pytorch/issues/2895, four layers of 320
// with 25,000 vectors in a batch): 736,000,000 bytes for LSTM and 864,000,000 for GRU, which is 5 and 6 vectors for each
// layer and step and one for each layer's output but the last. They are expected. Of plain cells the page has no such
// size: 1, the gate, is assumed. The least is what the gradients are computed from: the gates, the cell state (LSTM), and
// of GRU the recurrent part of the candidate, for sequences without padding. A plain cell's follow from its output.
// The most is for other versions, which may keep two vectors more, every output, and cell states of half types as float.
static size_t kept_at_least(const Rnn *r) { return r->cell == LSTM ? 5 : r->cell == GRU ? 4 : 0; }
static size_t kept(const Rnn *r) { return r->cell == LSTM ? 5 : r->cell == GRU ? 6 : 1; }
static size_t kept_at_most(const Rnn *r) { return kept(r) + 2 + (width_of(r->type) < sizeof(float)); }

static Guess reserve_of(const Rnn *r, const Sequence *x) {
  size_t vectors = (size_t)x->steps * (size_t)x->batch, layers = (size_t)r->layers;
  size_t hidden_bytes = hidden(r) * (size_t)r->directions * width_of(r->type);
  size_t output_bytes = output(r) * (size_t)r->directions * width_of(r->type);
  size_t projected = projects(r);   // what is projected is kept besides
  size_t mask = r->drops ? (layers - 1) * ((output(r) * (size_t)r->directions + 7) / 8) : 0;
  size_t dropped = r->drops ? (layers - 1) * output_bytes : 0;
  size_t padding = x->vectors < vectors ? vectors * (size_t)x->width * width_of(r->type) : 0;
  return (Guess){
      .low = x->vectors * (layers * (kept_at_least(r) + projected) * hidden_bytes + (layers - 1) * output_bytes + mask),
      .expected = vectors * (layers * (kept(r) + projected) * hidden_bytes + (layers - 1) * output_bytes + mask + dropped),
      .high = vectors * (layers * (kept_at_most(r) + projected) * hidden_bytes + layers * output_bytes + mask + dropped) +
              padding,
  };
}

// Of the workspaces on the same page, 17,730,560 bytes for LSTM and 13,169,920 for GRU, the matrices are one part; the
// rest is 11 and 8 vectors for each layer and sequence, if there were 100 sequences. The least is the gates of one step;
// the most is twice the matrices, and gates, gradients and inputs of one layer for all steps.
static Guess workspace_of(const Rnn *r, const Sequence *x) {
  size_t width = width_of(r->type), vectors = (size_t)x->steps * (size_t)x->batch, directions = (size_t)r->directions;
  size_t matrices = matrix_elements(r, r->layers * r->directions) * width;
  size_t state = (size_t)x->batch * directions * hidden(r) * width;
  size_t states = (size_t)r->layers * (3 * gates(r) - 1) * state;
  size_t inputs = (size_t)x->width > output(r) * directions ? (size_t)x->width : output(r) * directions;
  return (Guess){
      .low = gates(r) * state,
      .expected = matrices + states,
      .high = 2 * matrices + states + vectors * width * ((gates(r) + 1) * hidden(r) * directions + inputs),
  };
}

EXPORT int cudnnGetRNNTempSpaceSizes(void *handle, const Rnn *r, int training, const Sequence *x, size_t *workspace,
                                     size_t *reserve) {
  if (workspace) *workspace = guess_for_a_call(RECURRENT, workspace_of(r, x));
  if (reserve) *reserve = training ? reserve_of(r, x).expected : 0;
  return OK;
}
EXPORT int cudnnRNNForward(void *handle, const Rnn *r, int training, const void *lengths, const Sequence *x, void *x_at,
                           void *y, void *y_at, void *h, void *hx, void *hy, void *c, void *cx, void *cy,
                           size_t weight_bytes, void *weights, size_t workspace_bytes, void *workspace,
                           size_t reserve_bytes, void *reserve) {
  if (training) hold_guess(RECURRENT, reserve, reserve_bytes, reserve_of(r, x));
  return OK;
}
EXPORT int cudnnRNNBackwardData_v8(void *handle, const Rnn *r, const void *lengths, void *y, void *y_at, void *dy,
                                   void *x, void *dx, void *h, void *hx, void *dhy, void *dhx, void *c, void *cx,
                                   void *dcy, void *dcx, size_t weight_bytes, void *weights, size_t workspace_bytes,
                                   void *workspace, size_t reserve_bytes, void *reserve) {
  let_guess_go(RECURRENT, reserve);
  return OK;
}

// What is known of the workspaces of each graph's plans, and how far it is in doubt.
#include "card.h"
#include "cudnn_graphs.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static _Atomic(Graph *) graphs;

Graph *graph_with(const char *hash, int operation, int64_t weights, size_t tensors_bytes) {
  static pthread_mutex_t finding = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&finding);
  Graph *found = graphs;
  while (found && strcmp(found->hash, hash)) found = found->next;
  if (!found && (found = calloc(1, sizeof *found))) {
    memcpy(found->hash, hash, sizeof found->hash);
    found->operation = operation;
    found->weights = weights;
    found->tensors_bytes = tensors_bytes;
    found->next = graphs;
    graphs = found;
  }
  pthread_mutex_unlock(&finding);
  return found;
}

// ---- engines that need a card ---------------------------------------------------------------------------------------
// Engines that multiply matrices through cuBLASLt cannot be offered without a card: creating cuBLASLt starts a CUDA
// runtime, which needs a driver. The numbers are the same in cuDNN 9.10 and 9.24. Wherever cuDNN ranks such an engine before
// what it offers, anything from no workspace to 128 MiB is possible; two recordings of cards say what to expect, both of
// ResNet-50 in fp32 with a batch of 1. On an A100, 71 of the 99 calls of convolutions with windows and steps of 1 took 128
// MiB, those for gradients of weights 4 bytes more for each weight. On an A10G, none took more than 10 MiB, and with the
// next plan all that it held of gradients, activations and states is the same to the byte. So the chips of data centres
// with wide memory are expected to do as the A100 does, and the others as the A10G.
enum { GEMM_FORWARD = 58, GEMM_FILTER = 62, GEMM_DATA = 63, GEMM_BYTES = 128 << 20 };

bool takes_gemm(void) {
  int sm = card()->sm;
  return sm == 80 || sm == 90 || (sm >= 100 && sm < 110);
}
int gemm_engine(const Graph *graph) {
  int operation = graph ? graph->operation : 0;
  return operation == FORWARD_KIND ? GEMM_FORWARD : operation == DATA_KIND ? GEMM_DATA
         : operation == FILTER_KIND ? GEMM_FILTER : -1;
}
size_t gemm_bytes(const Graph *graph) {
  return GEMM_BYTES + (graph->operation == FILTER_KIND ? (size_t)graph->weights * sizeof(float) : 0);
}

// ---- what has run ---------------------------------------------------------------------------------------------------
void graph_runs(Graph *graph, const void *plan, size_t bytes, bool needs_card, bool is_answered) {
  // Torch times plans one after the other. Where it takes another because a workspace did not fit, it has run others
  // between; what it takes is then what it would take.
  static _Thread_local const Graph *last_graph;
  static _Thread_local const void *last_plan;
  size_t low_bytes = bytes, high_bytes = bytes;
  graph->took_gemm = needs_card;
  graph->took_the_next = graph->begins_with_gemm && !takes_gemm();
  if (graph->took_gemm || graph->took_the_next) {
    low_bytes = 0;
    if (gemm_bytes(graph) > bytes) high_bytes = gemm_bytes(graph);
  }
  // Nobody knows. Most of what engines have been seen to take is for other layouts of the three tensors.
  graph->not_answered = !is_answered;
  if (graph->not_answered) high_bytes = graph->tensors_bytes + (takes_gemm() ? gemm_bytes(graph) : 0);
  if (graph == last_graph && plan != last_plan) graph->was_timed = true;
  if (!graph->was_timed || low_bytes < graph->least_bytes) graph->least_bytes = low_bytes;
  if (!graph->was_timed || high_bytes > graph->most_bytes) graph->most_bytes = high_bytes;
  graph->last_bytes = bytes;
  graph->has_run = true;
  last_graph = graph;
  last_plan = plan;
}

// How many graphs have run; how much less and more the workspace of one may be than what was taken for it, at most; and of
// how many it is not known: because the plan needs a card, because the next was taken in place of such a one, because torch
// has timed plans, because cuDNN would begin with another plan on a card, or because nobody answered.
EXPORT void dryfit_workspaces_in_doubt(size_t found[8]) {
  memset(found, 0, 8 * sizeof *found);
  for (const Graph *graph = graphs; graph; graph = graph->next) {
    if (!graph->has_run) continue;
    size_t less = graph->last_bytes - graph->least_bytes, more = graph->most_bytes - graph->last_bytes;
    found[0]++;
    if (less > found[1]) found[1] = less;
    if (more > found[2]) found[2] = more;
    found[3] += graph->took_gemm;
    found[4] += graph->took_the_next;
    found[5] += graph->was_timed;
    found[6] += graph->begins_with_another;
    found[7] += graph->not_answered;
  }
}

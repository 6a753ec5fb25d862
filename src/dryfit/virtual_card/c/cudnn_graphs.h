// The graphs that cuDNN was asked about, and the workspaces that their plans may take.
#ifndef DRYFIT_CUDNN_GRAPHS_H
#define DRYFIT_CUDNN_GRAPHS_H

#include "cudnn_answers.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// What is known of the plans of one graph; kept to the end of the process, as torch keeps plans.
typedef struct Graph {
  char hash[HASH_DIGITS + 1];
  int operation;                            // of a convolution: which; otherwise 0
  int64_t weights;                          // elements
  size_t tensors_bytes;                     // of a convolution: input, weights and output together
  _Atomic size_t least_bytes, most_bytes;   // of the workspaces of the plans that have run
  _Atomic size_t last_bytes;                // of the plan that has run last
  _Atomic bool begins_with_gemm, begins_with_another;
  _Atomic bool has_run, was_timed, took_gemm, took_the_next, not_answered;
  struct Graph *next;
} Graph;

// The graph of this hash; a convolution says which it is, how many elements its weights have, and what its tensors take.
Graph *graph_with(const char *hash, int operation, int64_t weights, size_t tensors_bytes);
// A plan of a graph runs, with so much workspace.
void graph_runs(Graph *graph, const void *plan, size_t bytes, bool needs_card, bool is_answered);

bool takes_gemm(void);                    // whether engines are expected to run that only a card has
int gemm_engine(const Graph *graph);      // the number of the one for this graph; -1 where there is none
size_t gemm_bytes(const Graph *graph);    // its workspace

#endif

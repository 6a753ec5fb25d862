// What NCCL's calls pass between ranks.
#ifndef DRYFIT_TRAFFIC_H
#define DRYFIT_TRAFFIC_H

#include <stdbool.h>
#include <stddef.h>

typedef enum {
  ALL_REDUCE,
  REDUCE_SCATTER,
  ALL_GATHER,
  BROADCAST,
  REDUCE,
  ALL_TO_ALL,
  GATHER,
  SCATTER,
  SEND,
  RECEIVE,
  TRAFFIC_KINDS
} Traffic;

// One call of this rank, with the bytes it says for each rank, among so many ranks. `is_root` is said of the kinds that
// have a root; of a send and a receipt, `ranks` is 1 where a rank passes something to itself.
void count_traffic(Traffic kind, size_t bytes, int ranks, bool is_root);

#endif

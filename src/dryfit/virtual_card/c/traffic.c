// What NCCL's calls pass between ranks: calls, payload, and the bytes that one rank sends over its wires.
//
// A rank of a ring sends so much of the payload: 2 (n - 1) / n for an all-reduce, (n - 1) / n for a reduce-scatter and
// an all-gather, all of it for a broadcast and a reduction; so NCCL's own page on its bandwidth
// (github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md). In other algorithms, trees and switches that reduce, ranks send
// other amounts.
#include "card.h"
#include "traffic.h"

#include <stdatomic.h>

static struct {
  _Atomic size_t calls, payload_bytes, sent_bytes;
} passed[TRAFFIC_KINDS];

static size_t payload_of(Traffic kind, size_t bytes, size_t n) {
  switch (kind) {
    case REDUCE_SCATTER:
    case ALL_GATHER:
    case ALL_TO_ALL:
    case GATHER:
    case SCATTER: return bytes * n;
    default: return bytes;
  }
}
static size_t sent_of(Traffic kind, size_t bytes, size_t n, bool is_root) {
  if (n < 2) return 0;
  switch (kind) {
    case ALL_REDUCE: return bytes / n * 2 * (n - 1) + bytes % n * 2 * (n - 1) / n;   // a product might overflow
    case REDUCE_SCATTER:
    case ALL_GATHER:
    case ALL_TO_ALL: return bytes * (n - 1);
    case GATHER: return is_root ? 0 : bytes;   // these two are sends and receipts
    case SCATTER: return is_root ? bytes * (n - 1) : 0;
    case RECEIVE: return 0;
    default: return bytes;   // but for the last of the ring, every rank passes all of it on
  }
}

void count_traffic(Traffic kind, size_t bytes, int ranks, bool is_root) {
  size_t n = (size_t)ranks;
  atomic_fetch_add(&passed[kind].calls, 1);
  atomic_fetch_add(&passed[kind].payload_bytes, payload_of(kind, bytes, n));
  atomic_fetch_add(&passed[kind].sent_bytes, sent_of(kind, bytes, n, is_root));
}

// Of the i-th kind so far: calls, payload and sent bytes; its name, or NULL past the last one.
EXPORT const char *dryfit_traffic(int i, size_t found[3]) {
  static const char *const names[TRAFFIC_KINDS] = {
      [ALL_REDUCE] = "all-reduce", [REDUCE_SCATTER] = "reduce-scatter", [ALL_GATHER] = "all-gather",
      [BROADCAST] = "broadcast",   [REDUCE] = "reduce",                 [ALL_TO_ALL] = "all-to-all",
      [GATHER] = "gather",         [SCATTER] = "scatter",               [SEND] = "send",
      [RECEIVE] = "receive",
  };
  if (i < 0 || i >= TRAFFIC_KINDS) return NULL;
  found[0] = atomic_load(&passed[i].calls);
  found[1] = atomic_load(&passed[i].payload_bytes);
  found[2] = atomic_load(&passed[i].sent_bytes);
  return names[i];
}

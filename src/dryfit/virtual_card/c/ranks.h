// Real ranks on one host, passing small payloads to each other through shared memory.
#ifndef DRYFIT_RANKS_H
#define DRYFIT_RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PAYLOAD ((size_t)64 << 10)   // object lists, shapes and counters are smaller; what is larger nobody looks at

typedef struct World World;
World *meet(uint64_t key, int ranks, int rank);   // NULL where a rank did not come; last_failure() says which
void leave(World *world);
const char *exchange(World *world, const void *mine, size_t n);   // everybody's bytes, PAYLOAD apart by rank; or NULL
bool try_post(World *world, int peer, const void *from, size_t n);   // false while the peer's box is full
bool try_collect(World *world, int peer, void *to, size_t n);        // false while there is nothing from this peer

// Waiting, for the caller's own loops: false once it is no use any more.
typedef struct {
  int turns;
  double began, checked;
  bool ended;   // the peer's process has; it may have posted before
} Patience;
bool keep_waiting(Patience *patience, const World *world, int peer);
void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *last_failure(void);

#endif

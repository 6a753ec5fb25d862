// Handles, and the list of the calls that were made and have no faithful answer.
#include "card.h"

#include <dlfcn.h>
#include <stdatomic.h>

static _Atomic uintptr_t last_handle = 0x1000;
static UnfaithfulCall *_Atomic first_call;

// Handles are numbers that nobody dereferences; 256 apart, so that a kind of handle may keep facts in its low byte.
void *new_handle(void) { return (void *)(atomic_fetch_add(&last_handle, 256) + 256); }

void *function_of(const char *library, const char *name) {
  void *loaded = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  return loaded ? dlsym(loaded, name) : NULL;
}

void count_unfaithful(UnfaithfulCall *call) {
  atomic_fetch_add(&call->count, 1);
  if (atomic_exchange(&call->listed, 1)) return;
  UnfaithfulCall *head = atomic_load(&first_call);
  do atomic_store(&call->next, head);
  while (!atomic_compare_exchange_weak(&first_call, &head, call));
}

// How often the i-th of these calls was made, and its name; 0 past the last one. The newest name comes first, so a list
// read while other threads go on may repeat one, and is exact once they have stopped.
EXPORT size_t dryfit_unfaithful_calls(size_t i, const char **name) {
  UnfaithfulCall *call = atomic_load(&first_call);
  while (call && i--) call = atomic_load(&call->next);
  if (!call) return 0;
  *name = call->name;
  return atomic_load(&call->count);
}

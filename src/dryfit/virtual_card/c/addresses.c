// The address space that stands for device memory, and where a new range goes in it.
//
// Up to torch 2.11 the allocator breaks ties between free blocks of equal size by their address, so the order in which
// addresses are handed out decides reserved memory, and a little of allocated memory. As recordings from real cards show
// it, the Linux driver reserves address space in multiples of 32 MiB, each reservation directly below the last; a range
// goes into the lowest hole that holds it, and opens a new reservation only where none does. The setting `order=up`
// hands addresses out upwards instead, as one public set of recordings shows; `order=down` puts each range directly
// below the last, as mmap does and as a driver would that reserves no more than it is asked for.
#include "card.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LARGEST_SPACE ((size_t)64 << 40)   // bytes asked of the system; half as much as often as it refuses
#define SMALLEST_SPACE (8 * GIB)
#define RESERVATION (32 * MIB)

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uintptr_t space_from, space_to;
static uintptr_t next_up, lowest_reservation;
static Ranges holes;

static void start(void) {
  size_t size = LARGEST_SPACE;
  void *space = MAP_FAILED;
  for (; size >= SMALLEST_SPACE; size /= 2) {
    space = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space != MAP_FAILED) break;
  }
  if (space == MAP_FAILED) {
    fprintf(stderr,
            "dryfit: the virtual card found no address space: the system refused %zu GiB, of which none would be "
            "filled. Lift the limit on virtual memory (ulimit -v unlimited; vm.overcommit_memory other than 2).\n",
            SMALLEST_SPACE / GIB);
    abort();
  }
  madvise(space, size, MADV_NOHUGEPAGE);   // a copy of four bytes must not cost 2 MiB
  madvise(space, size, MADV_DONTDUMP);
  size_t wanted = 2 * card()->memory_bytes * (size_t)card()->count;   // twice, since holes remain
  if (size < wanted)
    fprintf(stderr,
            "dryfit: the virtual card has %zu GiB of address space, and %d of these cards want %zu GiB, of which next "
            "to nothing is filled. Lift the limit on virtual memory (ulimit -v unlimited; vm.overcommit_memory other "
            "than 2), or a program that fits may seem not to.\n",
            size / GIB, card()->count, wanted / GIB);
  next_up = ROUND_UP((uintptr_t)space, RESERVATION);
  lowest_reservation = ((uintptr_t)space + size - DEVICE_PAGE) & ~(RESERVATION - 1);
  atomic_store(&space_to, lowest_reservation);
  atomic_store(&space_from, next_up);
}

// A process forked while another thread is in here must not find the lock taken for ever.
static void before_fork(void) { pthread_mutex_lock(&mutex); }
static void after_fork(void) { pthread_mutex_unlock(&mutex); }
__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(before_fork, after_fork, after_fork); }

void lock_card(void) {
  card();   // outside the lock: reading the settings may wait for the loader's lock, whose holder may wait for this one
  pthread_mutex_lock(&mutex);
  if (!atomic_load(&space_from)) start();
}
void unlock_card(void) { pthread_mutex_unlock(&mutex); }

bool is_device(const void *p) {
  uintptr_t address = (uintptr_t)p, from = atomic_load(&space_from);
  return from && address >= from && address < atomic_load(&space_to);
}
EXPORT int dryfit_is_device(const void *p) { return is_device(p); }

uintptr_t first_address(void) { return atomic_load(&space_from); }

// ---- sorted ranges --------------------------------------------------------------------------------------------------
static int first_above(const Ranges *ranges, uintptr_t address) {   // index of the first range whose base is above it
  int low = 0, high = ranges->count;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (ranges->at[middle].base > address) high = middle;
    else low = middle + 1;
  }
  return low;
}

void insert_range(Ranges *ranges, Range range) {
  if (ranges->count == ranges->room) {
    int room = ranges->room ? 2 * ranges->room : 256;
    Range *at = realloc(ranges->at, (size_t)room * sizeof *at);
    if (!at) {
      fprintf(stderr, "dryfit: the virtual card ran out of host memory for its list of %d ranges.\n", room);
      abort();
    }
    ranges->at = at;
    ranges->room = room;
  }
  int i = first_above(ranges, range.base);
  memmove(ranges->at + i + 1, ranges->at + i, sizeof(Range) * (size_t)(ranges->count - i));
  ranges->at[i] = range;
  ranges->count++;
}

int find_range(const Ranges *ranges, uintptr_t address) {
  int i = first_above(ranges, address) - 1;
  if (i < 0) return -1;
  size_t size = ranges->at[i].size ? ranges->at[i].size : 1;   // an empty range still has its address
  return address < ranges->at[i].base + size ? i : -1;
}

int find_base(const Ranges *ranges, uintptr_t base) {
  int i = first_above(ranges, base) - 1;
  return i >= 0 && ranges->at[i].base == base ? i : -1;
}

bool overlaps_any(const Ranges *ranges, uintptr_t base, size_t size) {
  int i = first_above(ranges, base + (size ? size - 1 : 0)) - 1;
  return i >= 0 && ranges->at[i].base + (ranges->at[i].size ? ranges->at[i].size : 1) > base;
}

Range remove_range(Ranges *ranges, int i) {
  Range range = ranges->at[i];
  memmove(ranges->at + i, ranges->at + i + 1, sizeof(Range) * (size_t)(ranges->count - i - 1));
  ranges->count--;
  return range;
}

// ---- placement ------------------------------------------------------------------------------------------------------
static uintptr_t take_from_holes(size_t size, bool exact) {
  for (int i = 0; i < holes.count; i++) {
    Range *hole = &holes.at[i];
    if (exact ? hole->size != size : hole->size < size) continue;
    uintptr_t base = hole->base;
    hole->base += size;
    hole->size -= size;
    if (!hole->size) remove_range(&holes, i);
    return base;
  }
  return 0;
}

static uintptr_t find_addresses(size_t size) {
  bool in_a_row = card()->order != AS_LINUX;
  uintptr_t base = take_from_holes(size, in_a_row);
  size_t left = lowest_reservation - next_up;
  if (base) return base;
  if (in_a_row) {
    if (size > left) return take_from_holes(size, false);
    if (card()->order == DOWNWARDS) return lowest_reservation -= size;
    base = next_up;
    next_up += size;
    return base;
  }
  size_t reservation = ROUND_UP(size, RESERVATION);
  if (reservation < size || reservation > left) return 0;
  lowest_reservation -= reservation;
  if (reservation > size) give_addresses_back(lowest_reservation + size, reservation - size);
  return lowest_reservation;
}

uintptr_t take_addresses(size_t size) {
  static bool said;
  uintptr_t base = find_addresses(size);
  if (base) return base;
  UNFAITHFUL("address space used up");
  if (!said)
    fprintf(stderr,
            "dryfit: the virtual card ran out of address space, not of memory: %zu MiB were asked for. The error that "
            "follows says nothing about the card. Lift the limit on virtual memory (ulimit -v unlimited).\n",
            size / MIB);
  said = true;
  return 0;
}

void give_addresses_back(uintptr_t base, size_t size) {   // neighbouring holes become one
  int after = find_range(&holes, base + size);
  if (after >= 0) size += remove_range(&holes, after).size;
  int before = find_range(&holes, base - 1);
  if (before >= 0) holes.at[before].size += size;
  else insert_range(&holes, (Range){.base = base, .size = size});
}

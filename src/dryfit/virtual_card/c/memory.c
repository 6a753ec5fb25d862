// Allocation: device memory in pages of 2 MiB up to the card's usable memory, the driver's asynchronous pool, managed
// memory, and pinned host memory.
#include "card.h"

#include <string.h>
#include <sys/mman.h>

#define POOL_STEP (32 * MIB)   // by how much the driver's pool grows: a guess, and counted as one
#define POOL_ROUND 512
#define PITCH 512

Ranges device_ranges;
static Ranges pinned_ranges;
enum { PINNED_HERE, REGISTERED };   // the kinds of those

// As the driver counts them, without `outside_bytes`: what programs take, and what NCCL does for itself.
static size_t used[MAX_DEVICES], peak_used[MAX_DEVICES], most_used[MAX_DEVICES], outside[MAX_DEVICES];
static struct {
  size_t used, peak_used, reserved, peak_reserved;
} pools[MAX_DEVICES];

// ---- counting -------------------------------------------------------------------------------------------------------
static size_t left_of(int device) { return usable_bytes() - outside[device] - used[device]; }   // with the lock held
bool take_memory(int device, size_t bytes) {
  if (bytes > left_of(device)) return false;
  used[device] += bytes;
  if (used[device] > peak_used[device]) peak_used[device] = used[device];
  if (used[device] > most_used[device]) most_used[device] = used[device];
  return true;
}
void give_memory_back(int device, size_t bytes) { used[device] -= bytes; }

static size_t locked_read(const size_t *value) {
  lock_card();
  size_t now = *value;
  unlock_card();
  return now;
}
bool is_a_device(int device) { return device >= 0 && device < MAX_DEVICES; }
size_t used_bytes(int device) { return is_a_device(device) ? locked_read(&used[device]) : 0; }
size_t taken_outside(int device) { return is_a_device(device) ? locked_read(&outside[device]) : 0; }
size_t free_bytes(int device) {
  lock_card();
  size_t left = is_a_device(device) ? left_of(device) : usable_bytes();
  unlock_card();
  return left;
}

bool take_outside(int device, size_t bytes) {
  lock_card();
  bool fits = bytes <= left_of(device);
  if (fits) outside[device] += bytes;
  unlock_card();
  return fits;
}
void give_outside_back(int device, size_t bytes) {
  lock_card();
  outside[device] -= bytes;
  unlock_card();
}

EXPORT size_t dryfit_used_bytes(int device) { return used_bytes(device); }
EXPORT size_t dryfit_peak_used_bytes(int device) { return is_a_device(device) ? locked_read(&peak_used[device]) : 0; }
EXPORT size_t dryfit_most_used_bytes(int device) {   // ever
  return is_a_device(device) ? locked_read(&most_used[device]) : 0;
}
EXPORT int dryfit_board_of(int device) { return board_of(device); }   // as nvidia-smi numbers it
EXPORT void dryfit_reset_peak_used(int device) {
  if (!is_a_device(device)) return;
  lock_card();
  peak_used[device] = used[device];
  unlock_card();
}
EXPORT size_t dryfit_take_peak_used_bytes(void) {   // the highest of all devices; each begins a new peak
  size_t highest = 0;
  lock_card();
  for (int device = 0; device < MAX_DEVICES; device++) {
    if (peak_used[device] > highest) highest = peak_used[device];
    peak_used[device] = used[device];
  }
  unlock_card();
  return highest;
}

// ---- what copies store ----------------------------------------------------------------------------------------------
// A program that keeps a data set of small tensors on the card would fill the host with it.
#define STORED_LIMIT (2 * GIB)
static size_t stored_bytes;

static size_t touched_pages(const void *p, size_t n, size_t *of) {
  unsigned char there[SMALL_COPY / HOST_PAGE + 1];
  uintptr_t first_page = (uintptr_t)p & ~(HOST_PAGE - 1);
  size_t touched = 0;
  *of = ROUND_UP((uintptr_t)p + n - first_page, HOST_PAGE) / HOST_PAGE;
  if (*of > sizeof there || mincore((void *)first_page, *of * HOST_PAGE, there)) return *of;
  for (size_t i = 0; i < *of; i++) touched += there[i] & 1;
  return touched;
}
bool is_untouched(const void *p, size_t n) {
  size_t of;
  return touched_pages(p, n, &of) == 0;
}
bool may_store(void *to, size_t n) {
  size_t of, touched = touched_pages(to, n, &of), fresh = (of - touched) * HOST_PAGE;
  if (!fresh) return true;
  lock_card();
  int i = find_range(&device_ranges, (uintptr_t)to);
  bool may = fresh <= STORED_LIMIT - stored_bytes;
  if (may && i >= 0) {
    device_ranges.at[i].stored_bytes += fresh;
    stored_bytes += fresh;
  }
  unlock_card();
  if (!may) UNFAITHFUL("copies not stored");
  return may;
}
void forget_stored(const void *p, size_t n) {   // n bytes were dropped, and any of them may have been stored
  lock_card();
  int i = find_range(&device_ranges, (uintptr_t)p);
  if (i >= 0) {
    size_t bytes = n < device_ranges.at[i].stored_bytes ? n : device_ranges.at[i].stored_bytes;
    device_ranges.at[i].stored_bytes -= bytes;
    stored_bytes -= bytes;
  }
  unlock_card();
}
void drop_pages(Range range) {   // with the lock held
  stored_bytes -= range.stored_bytes;
  madvise((void *)range.base, pages(range.size), MADV_DONTNEED);
}

// ---- device memory --------------------------------------------------------------------------------------------------
size_t pages(size_t size) { return size ? ROUND_UP(size, DEVICE_PAGE) : DEVICE_PAGE; }

static int place(void **out, size_t size, int device, int kind, size_t cost) {   // with the lock held
  if (size > SIZE_MAX - DEVICE_PAGE || !take_memory(device, cost)) return OUT_OF_MEMORY;
  uintptr_t base = take_addresses(pages(size));
  if (!base) {
    give_memory_back(device, cost);
    return OUT_OF_MEMORY;
  }
  insert_range(&device_ranges, (Range){.base = base, .size = size, .device = device, .kind = kind});
  *out = (void *)base;
  return OK;
}

int allocate(void **out, size_t size, int device) {
  lock_card();
  int status = place(out, size, device, BY_MALLOC, ROUND_UP(size, DEVICE_PAGE));
  unlock_card();
  return status;
}

// Managed memory lives where it was last touched, and nothing touches it here.
int allocate_managed(void **out, size_t size, int device) {
  UNFAITHFUL("cudaMallocManaged");
  lock_card();
  int status = place(out, size, device, BY_MANAGED, 0);
  unlock_card();
  return status;
}

static size_t pool_growth(int device, size_t want) {
  return want > pools[device].reserved ? want - pools[device].reserved : 0;
}
int allocate_from_pool(void **out, size_t size, int device) {
  UNFAITHFUL("cudaMallocAsync");
  lock_card();
  size_t rounded = ROUND_UP(size, POOL_ROUND), want = pools[device].used + rounded, growth = 0;
  int status = rounded < size ? OUT_OF_MEMORY : OK;
  if (status == OK) {
    growth = pool_growth(device, ROUND_UP(want, POOL_STEP));
    if (growth > left_of(device)) growth = pool_growth(device, ROUND_UP(want, DEVICE_PAGE));
    status = place(out, size, device, BY_POOL, growth);
  }
  if (status == OK) {
    pools[device].used += rounded;
    pools[device].reserved += growth;
    if (pools[device].used > pools[device].peak_used) pools[device].peak_used = pools[device].used;
    if (pools[device].reserved > pools[device].peak_reserved) pools[device].peak_reserved = pools[device].reserved;
  }
  unlock_card();
  return status;
}

int release(void *p) {
  if (!p) return OK;
  lock_card();
  int i = find_base(&device_ranges, (uintptr_t)p);
  bool known = i >= 0 && device_ranges.at[i].kind != BY_MAPPING;
  if (known) {
    Range range = remove_range(&device_ranges, i);
    if (range.kind == BY_MALLOC) give_memory_back(range.device, ROUND_UP(range.size, DEVICE_PAGE));
    if (range.kind == BY_POOL) pools[range.device].used -= ROUND_UP(range.size, POOL_ROUND);
    drop_pages(range);
    give_addresses_back(range.base, pages(range.size));
  }
  unlock_card();
  return known ? OK : INVALID_VALUE;
}

static int nothing(void **out) {   // what the runtime answers to a request for no bytes; the driver refuses it
  *out = NULL;
  return OK;
}
EXPORT int cudaMalloc(void **out, size_t size) {
  return size ? failed(allocate(out, size, current_device())) : nothing(out);
}
EXPORT int cudaMallocManaged(void **out, size_t size, unsigned flags) {
  return failed(size ? allocate_managed(out, size, current_device()) : INVALID_VALUE);
}
EXPORT int cudaFree(void *p) { return failed(release(p)); }

int allocate_rows(void **out, size_t *pitch, size_t width, size_t rows) {
  *pitch = ROUND_UP(width, PITCH);
  if (*pitch < width || (rows && *pitch > SIZE_MAX / rows)) return OUT_OF_MEMORY;
  return *pitch && rows ? allocate(out, *pitch * rows, current_device()) : nothing(out);
}
EXPORT int cudaMallocPitch(void **out, size_t *pitch, size_t width, size_t height) {
  return failed(allocate_rows(out, pitch, width, height));
}
typedef struct {
  size_t width, height, depth;
} Extent;
EXPORT int cudaMalloc3D(void *out, Extent extent) {
  struct {
    void *at;
    size_t pitch, width, height;
  } rows = {.width = extent.width, .height = extent.height};   // cudaPitchedPtr
  if (extent.depth && extent.height > SIZE_MAX / extent.depth) return failed(OUT_OF_MEMORY);
  int status = allocate_rows(&rows.at, &rows.pitch, extent.width, extent.height * extent.depth);
  if (status == OK) memcpy(out, &rows, sizeof rows);
  return failed(status);
}
EXPORT int cudaMemGetInfo(size_t *free, size_t *total) {
  *free = free_bytes(current_device());
  *total = card()->memory_bytes;
  return OK;
}

// ---- the asynchronous pool (PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync) ----------------------------------------
int pool_device(const void *pool) {
  size_t index = ((uintptr_t)pool - (uintptr_t)pools) / sizeof pools[0];
  return index < MAX_DEVICES ? (int)index : current_device();
}
EXPORT int cudaMallocAsync(void **out, size_t size, void *stream) {
  return size ? failed(allocate_from_pool(out, size, current_device())) : nothing(out);
}
EXPORT int cudaMallocFromPoolAsync(void **out, size_t size, void *pool, void *stream) {
  return size ? failed(allocate_from_pool(out, size, pool_device(pool))) : nothing(out);
}
EXPORT int cudaFreeAsync(void *p, void *stream) { return failed(release(p)); }
EXPORT int cudaDeviceGetDefaultMemPool(void **pool, int device) {
  if (!is_visible(device)) return failed(INVALID_DEVICE);
  *pool = &pools[device];
  return OK;
}
EXPORT int cudaDeviceGetMemPool(void **pool, int device) { return cudaDeviceGetDefaultMemPool(pool, device); }

enum { RELEASE_THRESHOLD = 4, POOL_RESERVED, POOL_PEAK_RESERVED, POOL_USED, POOL_PEAK_USED };   // cudaMemPoolAttr
EXPORT int cudaMemPoolGetAttribute(void *pool, int attribute, void *value) {
  int device = pool_device(pool);
  lock_card();
  switch (attribute) {
    case RELEASE_THRESHOLD: *(uint64_t *)value = UINT64_MAX; break;
    case POOL_RESERVED: *(uint64_t *)value = pools[device].reserved; break;
    case POOL_PEAK_RESERVED: *(uint64_t *)value = pools[device].peak_reserved; break;
    case POOL_USED: *(uint64_t *)value = pools[device].used; break;
    case POOL_PEAK_USED: *(uint64_t *)value = pools[device].peak_used; break;
    default: *(int *)value = 1;   // the three kinds of reuse are on
  }
  unlock_card();
  return OK;
}
EXPORT int cudaMemPoolSetAttribute(void *pool, int attribute, void *value) {
  int device = pool_device(pool);
  lock_card();
  if (attribute == POOL_PEAK_RESERVED) pools[device].peak_reserved = pools[device].reserved;
  if (attribute == POOL_PEAK_USED) pools[device].peak_used = pools[device].used;
  unlock_card();
  return OK;
}
EXPORT int cudaMemPoolTrimTo(void *pool, size_t keep) {
  int device = pool_device(pool);
  lock_card();
  size_t want = ROUND_UP(pools[device].used, POOL_STEP);
  if (want < keep) want = keep;
  if (want < pools[device].reserved) {
    give_memory_back(device, pools[device].reserved - want);
    pools[device].reserved = want;
  }
  unlock_card();
  return OK;
}

// ---- pinned host memory: pages that large copies never touch, so it costs nothing -----------------------------------
int pinned_allocate(void **out, size_t size) {
  size_t mapped = ROUND_UP(size ? size : 1, HOST_PAGE);
  void *p = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return OUT_OF_MEMORY;
  lock_card();
  insert_range(&pinned_ranges, (Range){.base = (uintptr_t)p, .size = mapped, .kind = PINNED_HERE});
  unlock_card();
  *out = p;
  return OK;
}
static int unpin(void *p, int kind) {
  if (!p) return OK;
  lock_card();
  int i = find_base(&pinned_ranges, (uintptr_t)p);
  bool known = i >= 0 && pinned_ranges.at[i].kind == kind;
  Range range = {0};
  if (known) range = remove_range(&pinned_ranges, i);
  unlock_card();
  if (known && kind == PINNED_HERE) munmap(p, range.size);
  return known ? OK : kind == REGISTERED ? NOT_REGISTERED : INVALID_VALUE;
}
int unpin_here(void *p) { return unpin(p, PINNED_HERE); }
EXPORT int cudaHostAlloc(void **out, size_t size, unsigned flags) {
  return size ? failed(pinned_allocate(out, size)) : nothing(out);
}
EXPORT int cudaMallocHost(void **out, size_t size) { return cudaHostAlloc(out, size, 0); }
EXPORT int cudaFreeHost(void *p) { return failed(unpin_here(p)); }
EXPORT int cudaHostGetDevicePointer(void **out, void *p, unsigned flags) {
  *out = p;
  return OK;
}
int register_here(void *p, size_t size) {
  if (!p || !size) return INVALID_VALUE;
  lock_card();
  bool free = !overlaps_any(&pinned_ranges, (uintptr_t)p, size);
  if (free) insert_range(&pinned_ranges, (Range){.base = (uintptr_t)p, .size = size, .kind = REGISTERED});
  unlock_card();
  return free ? OK : ALREADY_REGISTERED;
}
int unregister_here(void *p) { return p ? unpin(p, REGISTERED) : INVALID_VALUE; }
EXPORT int cudaHostRegister(void *p, size_t size, unsigned flags) {
  return failed(register_here(p, size));
}
EXPORT int cudaHostUnregister(void *p) { return failed(unregister_here(p)); }

bool owns_pages(const void *p) {   // may their contents be dropped?
  if (is_device(p)) return true;
  lock_card();
  int i = find_range(&pinned_ranges, (uintptr_t)p);
  bool ours = i >= 0 && pinned_ranges.at[i].kind == PINNED_HERE;
  unlock_card();
  return ours;
}

// ---- what a pointer points to ---------------------------------------------------------------------------------------
int kind_of_memory(const void *p, Range *range) {
  int kind = MEMORY_PAGEABLE;
  *range = (Range){.base = (uintptr_t)p, .device = current_device()};
  lock_card();
  if (is_device(p)) {
    kind = MEMORY_DEVICE;
    int i = find_range(&device_ranges, (uintptr_t)p);
    if (i >= 0) {
      *range = device_ranges.at[i];
      if (range->kind == BY_MANAGED) kind = MEMORY_MANAGED;
    }
  } else {
    int i = find_range(&pinned_ranges, (uintptr_t)p);
    if (i >= 0) {
      *range = pinned_ranges.at[i];
      kind = MEMORY_PINNED;
    }
  }
  unlock_card();
  return kind;
}
EXPORT int cudaPointerGetAttributes(void *out, const void *p) {
  struct {
    int type, device;
    const void *device_pointer, *host_pointer;
  } *attributes = out;   // CUDA 13's grew at its end only
  Range range;
  int kind = kind_of_memory(p, &range);
  attributes->type = kind;
  attributes->device = kind == MEMORY_PAGEABLE ? -2 : range.device;   // cudaInvalidDeviceId
  attributes->device_pointer = kind == MEMORY_PAGEABLE ? NULL : p;
  attributes->host_pointer = kind == MEMORY_DEVICE ? NULL : p;
  return OK;
}

// ---- memory of another process: its size is known, its bytes are not ------------------------------------------------
typedef struct {
  uintptr_t base;
  size_t size;
  char rest[48];
} IpcHandle;
EXPORT int cudaIpcGetMemHandle(IpcHandle *handle, void *p) {
  Range range;
  if (kind_of_memory(p, &range) != MEMORY_DEVICE) return failed(INVALID_VALUE);
  *handle = (IpcHandle){.base = range.base, .size = range.size};
  return OK;
}
EXPORT int cudaIpcOpenMemHandle(void **out, IpcHandle handle, unsigned flags) {
  lock_card();
  int status = place(out, handle.size, current_device(), BY_OTHER_PROCESS, 0);
  unlock_card();
  return failed(status);
}
EXPORT int cudaIpcCloseMemHandle(void *p) { return failed(release(p)); }

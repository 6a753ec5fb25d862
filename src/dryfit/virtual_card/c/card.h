// The virtual card: what its C files share.
//
// Loaded in front of the CUDA libraries, these files answer every CUDA call that PyTorch makes. No kernel runs, and
// device memory is address space of this process whose pages exist only where a small copy touched them; so PyTorch's
// own CUDA code, with its real caching allocator, allocates just as it does on a card.
//
// No CUDA header is needed. The few layouts that PyTorch reads are written out where they are used, and the signatures
// are those of CUDA 12 and 13 with `int` for every status and enumeration and `void *` for every handle.
#ifndef DRYFIT_CARD_H
#define DRYFIT_CARD_H

#define _GNU_SOURCE   // so this header comes first

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// CUDA's signatures are given, and most arguments decide nothing about memory.
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define EXPORT __attribute__((visibility("default")))
#define ROUND_UP(n, to) (((size_t)(n) + (size_t)(to) - 1) / (size_t)(to) * (size_t)(to))

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
#define HOST_PAGE ((size_t)4096)
#define DEVICE_PAGE (2 * MIB)   // the driver hands out memory in pages of 2 MiB
#define SMALL_COPY MIB          // copies up to this size are real
#define TINY_COPY (64 * KIB)    // those up to this one always; for the others there is a budget of host memory
#define MAX_DEVICES 64

// The statuses that are returned; the runtime and the driver number them alike.
enum {
  OK = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  INVALID_FUNCTION = 98,   // torch itself says these two where its kernels are not compiled for the card
  NO_DEVICE = 100,
  INVALID_DEVICE = 101,
  NO_KERNEL_IMAGE = 209,
  ILLEGAL_STATE = 401,
  SYMBOL_NOT_FOUND = 500,
  ALREADY_REGISTERED = 712,
  NOT_REGISTERED = 713,
  CAPTURE_UNSUPPORTED = 900,
};

// ---- settings.c: which card this is, from DRYFIT_VIRTUAL_CARD -------------------------------------------------------
typedef enum { AS_LINUX, UPWARDS, DOWNWARDS } AddressOrder;   // addresses.c says what they are
typedef struct {
  char name[128];   // as nvidia-smi and torch.cuda.get_device_name show it
  int sm;           // compute capability, 89 for 8.9
  int sms;          // multiprocessors
  int threads_per_sm;
  size_t l2_bytes;
  size_t memory_bytes;    // total, as cudaMemGetInfo shows it
  size_t outside_bytes;   // of it, taken by the CUDA context from the start
  int count;              // devices of this kind
  AddressOrder order;     // how addresses are handed out
  int cuda;               // 12 or 13: whose layouts the loaded torch expects
  int cudnn;              // what cudnnGetVersion answers
  bool alone;             // this process is the only one of its distributed world
  int wait_seconds;       // how long one rank waits for another
} Settings;
const Settings *card(void);
int visible_devices(void);
int boards(void);                                         // cards of the machine, as NVML counts them
int board_of(int device);                                 // the number of CUDA's device there
int device_on(int board);                                 // and back; -1 for a card that the program does not see
void board_uuid(unsigned char bytes[16], int board);
size_t usable_bytes(void);

// ---- calls.c: handles, and the calls that have no faithful answer ---------------------------------------------------
typedef struct UnfaithfulCall {
  const char *name;
  _Atomic size_t count;
  _Atomic int listed;
  struct UnfaithfulCall *_Atomic next;
} UnfaithfulCall;
void count_unfaithful(UnfaithfulCall *call);
#define UNFAITHFUL(text)                            \
  do {                                              \
    static UnfaithfulCall call_ = {.name = (text)}; \
    count_unfaithful(&call_);                       \
  } while (0)
void *new_handle(void);
void *function_of(const char *library, const char *name);   // in a library that torch brought along; NULL if it did not

// ---- addresses.c: the address space that stands for device memory ---------------------------------------------------
typedef struct {
  uintptr_t base;
  size_t size;
  int device;
  int kind;
  size_t stored_bytes;   // of larger copies, in pages that they were the first to touch
  uint64_t link;   // of mapped addresses, the handle of their memory; mapping.c has another use for it
} Range;
typedef struct {
  Range *at;   // sorted by base
  int count, room;
} Ranges;
void lock_card(void);   // guards everything below, and what memory.c keeps
void unlock_card(void);
void insert_range(Ranges *ranges, Range range);
int find_range(const Ranges *ranges, uintptr_t address);   // the range that holds this address, or -1
int find_base(const Ranges *ranges, uintptr_t base);       // the range that begins there, or -1
bool overlaps_any(const Ranges *ranges, uintptr_t base, size_t size);
Range remove_range(Ranges *ranges, int index);
uintptr_t take_addresses(size_t size);   // 0, and said aloud, where the address space is used up; with the lock held
void give_addresses_back(uintptr_t base, size_t size);   // with the lock held
uintptr_t first_address(void);
bool is_device(const void *p);

// ---- memory.c -------------------------------------------------------------------------------------------------------
enum { MEMORY_PAGEABLE = 0, MEMORY_PINNED = 1, MEMORY_DEVICE = 2, MEMORY_MANAGED = 3 };   // as cudaMemoryType has them
enum { BY_MALLOC, BY_POOL, BY_MANAGED, BY_MAPPING, BY_OTHER_PROCESS };                    // the kinds of device ranges
extern Ranges device_ranges;
int allocate(void **out, size_t size, int device);
int allocate_managed(void **out, size_t size, int device);
int release(void *p);
int pinned_allocate(void **out, size_t size);
int unpin_here(void *p);
int register_here(void *p, size_t size);
int unregister_here(void *p);
int allocate_from_pool(void **out, size_t size, int device);
int pool_device(const void *pool);
int allocate_rows(void **out, size_t *pitch, size_t width, size_t rows);   // of the pitch that it answers
size_t used_bytes(int device);
size_t free_bytes(int device);
int kind_of_memory(const void *p, Range *range);   // MEMORY_..., and the whole range it lies in
void drop_pages(Range range);                      // of a range that is gone; with the lock held
bool may_store(void *to, size_t n);                // may one more larger copy take host memory for what it stores?
void forget_stored(const void *p, size_t n);
bool is_untouched(const void *p, size_t n);        // of at most SMALL_COPY: these pages hold zeros, and take no memory
bool owns_pages(const void *p);                    // is this memory whose pages can be dropped to clear it?
bool is_a_device(int device);
size_t pages(size_t size);                         // rounded up to whole ones, at least one
bool take_memory(int device, size_t bytes);        // counts bytes as used, unless the card is full; with the lock held
void give_memory_back(int device, size_t bytes);   // with the lock held
bool take_outside(int device, size_t bytes);       // of what is free, by a library for itself; false: the card is full
void give_outside_back(int device, size_t bytes);
size_t taken_outside(int device);

// ---- copy.c, runtime.c, stream.c, kernel.c: shared with the driver's interface --------------------------------------
int copy_bytes(void *to, const void *from, size_t n);
int fill_bytes(void *to, unsigned char value, size_t n);
int fill_words(void *to, uint32_t value, size_t n);
int create_stream(void **stream, unsigned flags, int priority);
int stream_priority(const void *stream);
int current_device(void);
int select_device(int device);
bool is_visible(int device);
int failed(int status);   // the runtime's functions return through it: the status is what cudaGetLastError shows
int device_attribute(int *value, int attribute, int device);
int active_blocks(int *blocks, int block_threads);
const char *error_text(int status);
const char *error_name(int status);
int driver_version(void);
int bus_number(int board);

#endif

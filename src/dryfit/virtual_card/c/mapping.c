// Virtual memory management, which expandable segments use: a range of addresses, physical memory, and the mapping of
// one onto the other. Physical memory counts as used from cuMemCreate until its handle and its last mapping are gone.
#include "card.h"

#include <sys/mman.h>

static Ranges
    physical;   // `base` is the handle, `link` counts what holds the memory: the handle itself and its mappings

EXPORT int cuMemGetAllocationGranularity(size_t *granularity, const void *properties, int which) {
  *granularity = DEVICE_PAGE;
  return OK;
}
EXPORT int cuMemAddressReserve(uint64_t *out, size_t size, size_t alignment, uint64_t at, unsigned long long flags) {
  lock_card();
  *out = take_addresses(pages(size));
  unlock_card();
  return *out ? OK : OUT_OF_MEMORY;
}
EXPORT int cuMemAddressFree(uint64_t base, size_t size) {
  lock_card();
  give_addresses_back(base, pages(size));
  unlock_card();
  return OK;
}

// CUmemAllocationProp begins with four ints: type, requested handle types, location type, location id.
EXPORT int cuMemCreate(uint64_t *handle, size_t size, const int *properties, unsigned long long flags) {
  int device = properties ? properties[3] : current_device();
  if (!is_a_device(device) || !size || size % DEVICE_PAGE) return INVALID_VALUE;
  lock_card();
  int status = take_memory(device, size) ? OK : OUT_OF_MEMORY;
  if (status == OK) {
    *handle = (uint64_t)(uintptr_t)new_handle();
    insert_range(&physical, (Range){.base = *handle, .size = size, .device = device, .link = 1});
  }
  unlock_card();
  return status;
}
static int let_go(uint64_t handle) {   // with the lock held
  int i = find_base(&physical, handle);
  if (i < 0) return INVALID_VALUE;
  if (--physical.at[i].link) return OK;
  Range memory = remove_range(&physical, i);
  give_memory_back(memory.device, memory.size);
  return OK;
}
EXPORT int cuMemRelease(uint64_t handle) {
  lock_card();
  int status = let_go(handle);
  unlock_card();
  return status;
}
EXPORT int cuMemRetainAllocationHandle(uint64_t *handle, void *p) {
  lock_card();
  int mapping = find_range(&device_ranges, (uintptr_t)p);
  int i = mapping < 0 ? -1 : find_base(&physical, device_ranges.at[mapping].link);
  if (i >= 0) {
    *handle = physical.at[i].base;
    physical.at[i].link++;
  }
  unlock_card();
  return i >= 0 ? OK : INVALID_VALUE;
}

EXPORT int cuMemMap(uint64_t base, size_t size, size_t offset, uint64_t handle, unsigned long long flags) {
  lock_card();
  int i = find_base(&physical, handle);
  bool fits = i >= 0 && offset + size <= physical.at[i].size && find_range(&device_ranges, base) < 0;
  if (fits) {
    physical.at[i].link++;
    insert_range(
        &device_ranges,
        (Range){.base = base, .size = size, .device = physical.at[i].device, .kind = BY_MAPPING, .link = handle});
  }
  unlock_card();
  return fits ? OK : INVALID_VALUE;
}
EXPORT int cuMemUnmap(uint64_t base, size_t size) {   // of one mapping, or of several in a row
  int found = 0;
  lock_card();
  for (uintptr_t at = base; at < base + size; found++) {
    int i = find_base(&device_ranges, at);
    if (i < 0 || device_ranges.at[i].kind != BY_MAPPING || at + device_ranges.at[i].size > base + size) break;
    Range mapping = remove_range(&device_ranges, i);
    let_go(mapping.link);
    at += mapping.size;
  }
  unlock_card();
  madvise((void *)base, size, MADV_DONTNEED);
  return found ? OK : INVALID_VALUE;
}

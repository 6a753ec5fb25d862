// Virtual memory management, which expandable segments use: a range of addresses, physical memory, and the mapping of
// one onto the other. Physical memory counts as used from cuMemCreate until its handle and its last mapping are gone.
#include "card.h"

#include <sys/mman.h>
#include <unistd.h>

// Of physical memory, `base` is the handle, and `link` counts what holds it: the handle itself and its mappings.
static Ranges physical, reserved;

EXPORT int cuMemGetAllocationGranularity(size_t *granularity, const void *properties, int which) {
  *granularity = DEVICE_PAGE;
  return OK;
}
EXPORT int cuMemAddressReserve(uint64_t *out, size_t size, size_t alignment, uint64_t at, unsigned long long flags) {
  if (!size || size % DEVICE_PAGE) return INVALID_VALUE;
  lock_card();
  *out = take_addresses(size);
  if (*out) insert_range(&reserved, (Range){.base = *out, .size = size});
  unlock_card();
  return *out ? OK : OUT_OF_MEMORY;
}
EXPORT int cuMemAddressFree(uint64_t base, size_t size) {
  lock_card();
  int i = find_base(&reserved, base);
  bool known = i >= 0 && reserved.at[i].size == size && !overlaps_any(&device_ranges, base, size);
  if (known) {
    remove_range(&reserved, i);
    give_addresses_back(base, size);
  }
  unlock_card();
  return known ? OK : INVALID_VALUE;
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
  if (memory.kind != BY_OTHER_PROCESS) give_memory_back(memory.device, memory.size);
  return OK;
}

// Memory for another process: a file descriptor, of which only the length is looked at.
EXPORT int cuMemExportToShareableHandle(int *descriptor, uint64_t handle, int type, unsigned long long flags) {
  enum { POSIX_FILE_DESCRIPTOR = 1, NOT_SUPPORTED = 801 };
  if (type != POSIX_FILE_DESCRIPTOR) return NOT_SUPPORTED;
  lock_card();
  int i = find_base(&physical, handle);
  size_t size = i >= 0 ? physical.at[i].size : 0;
  unlock_card();
  if (!size) return INVALID_VALUE;
  int file = memfd_create("dryfit memory", MFD_CLOEXEC);
  if (file < 0) return OUT_OF_MEMORY;
  if (ftruncate(file, (off_t)size)) {
    close(file);
    return OUT_OF_MEMORY;
  }
  *descriptor = file;
  return OK;
}
EXPORT int cuMemImportFromShareableHandle(uint64_t *handle, void *descriptor, int type) {
  off_t size = lseek((int)(intptr_t)descriptor, 0, SEEK_END);
  if (size <= 0) return INVALID_VALUE;
  lock_card();
  *handle = (uint64_t)(uintptr_t)new_handle();
  insert_range(&physical, (Range){.base = *handle,
                                  .size = (size_t)size,
                                  .device = current_device(),
                                  .kind = BY_OTHER_PROCESS,
                                  .link = 1});
  unlock_card();
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

static bool is_reserved(uint64_t base, size_t size) {
  int i = find_range(&reserved, base);
  return i >= 0 && size <= reserved.at[i].base + reserved.at[i].size - base;
}
EXPORT int cuMemMap(uint64_t base, size_t size, size_t offset, uint64_t handle, unsigned long long flags) {
  lock_card();
  int i = find_base(&physical, handle);
  bool within = i >= 0 && size && offset <= physical.at[i].size && size <= physical.at[i].size - offset;
  bool fits = within && is_reserved(base, size) && !overlaps_any(&device_ranges, base, size);
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
    drop_pages(mapping);
    at += mapping.size;
  }
  unlock_card();
  return found ? OK : INVALID_VALUE;
}

"""Calls of the runtime, the driver and NCCL, without torch, and what they answered."""

import ctypes
import json

from dryfit.virtual_card import calls

MIB, GIB = 1 << 20, 1 << 30
cuda = ctypes.CDLL(None)
said = {}


def number(n):
    return ctypes.c_size_t(n)


def fresh():
    return ctypes.c_uint64(0xDEAD)


def malloc(n):
    p = fresh()
    return cuda.cudaMalloc(ctypes.byref(p), number(n)), p.value


def at(address):
    return ctypes.c_void_p(address)


# ---- errors, and what has no size ----
said["nothing"] = malloc(0)
p = fresh()
said["nothing_of_the_driver"] = cuda.cuMemAlloc_v2(ctypes.byref(p), number(0))
said["no_error"] = cuda.cudaGetLastError()
said["too_much"] = malloc(100 * GIB)[0]
said["errors"] = [cuda.cudaPeekAtLastError(), cuda.cudaGetLastError(), cuda.cudaGetLastError()]
value = ctypes.c_int()
said["no_such_device"] = [
    cuda.cudaSetDevice(5),
    cuda.cudaDeviceGetAttribute(ctypes.byref(value), 16, 5),
    cuda.cuDeviceTotalMem_v2(ctypes.byref(p), 5),
    cuda.cuDeviceGetUuid(ctypes.create_string_buffer(16), 5),
]
said["by_bus"] = [cuda.cudaDeviceGetByPCIBusId(ctypes.byref(value), b"0000:01:00.0"), value.value]
said["by_wrong_bus"] = cuda.cudaDeviceGetByPCIBusId(ctypes.byref(value), b"0000:09:00.0")
said["alias"] = [
    ctypes.cast(cuda[name], ctypes.c_void_p).value == ctypes.cast(cuda[base], ctypes.c_void_p).value
    for name, base in (("cudaMemcpyAsync_ptsz", "cudaMemcpyAsync"), ("cuMemFree", "cuMemFree_v2"))
]

# ---- rows, and the pool ----
before = calls.used_bytes()
pitch = number(0)
assert cuda.cudaMallocPitch(ctypes.byref(p), ctypes.byref(pitch), number(1000), number(4096)) == 0
said["pitch"] = [pitch.value, calls.used_bytes() - before]
rows = p.value
assert cuda.cudaMemset(at(rows), 7, number(MIB)) == 0
host = ctypes.create_string_buffer(1000 * 4096)
assert cuda.cudaMemcpy2D(at(rows), pitch, host, number(1000), number(1000), number(4096), 1) == 0
back = ctypes.create_string_buffer(b"x" * 1000, 1000)
cuda.cudaMemcpy(back, at(rows + 1024), number(1000), 2)
said["large_rows_are_cleared"] = back.raw == bytes(1000)
assert cuda.cudaFree(at(rows)) == 0


class Extent(ctypes.Structure):
    _fields_ = [("width", ctypes.c_size_t), ("height", ctypes.c_size_t), ("depth", ctypes.c_size_t)]


box = (ctypes.c_uint64 * 4)()
assert cuda.cudaMalloc3D(box, Extent(100, 64, 128)) == 0
said["box"] = [box[1], box[2], box[3], calls.used_bytes() - before]
assert cuda.cudaFree(at(box[0])) == 0
assert cuda.cuMemAllocAsync(ctypes.byref(p), number(5 * MIB), None) == 0
said["pool"] = calls.used_bytes() - before
assert cuda.cuMemFreeAsync(p, None) == 0
uneven = malloc(10 * MIB)[1]
rest = 8 * GIB - calls.used_bytes() + 32 * MIB - 6 * MIB  # 32 MiB are in the pool; 6 MiB are to stay
assert cuda.cuMemAllocAsync(ctypes.byref(p), number(rest), None) == 0
said["pool_to_the_last_page"] = 8 * GIB - calls.used_bytes()
assert cuda.cuMemFreeAsync(p, None) == 0
assert cuda.cudaDeviceGetDefaultMemPool(ctypes.byref(p), 0) == 0
assert cuda.cuMemPoolTrimTo(p, number(0)) == 0
assert cuda.cudaFree(at(uneven)) == 0
said["pool_trimmed"] = calls.used_bytes() - before

# ---- pinned memory ----
assert cuda.cuMemHostAlloc(ctypes.byref(p), number(MIB), 0) == 0
said["unpinned"] = [cuda.cuMemFreeHost(p), cuda.cuMemFreeHost(p)]
mine = ctypes.create_string_buffer(MIB)
said["registered"] = [
    cuda.cudaHostRegister(mine, number(MIB), 0),
    cuda.cudaHostRegister(at(ctypes.addressof(mine) + 4096), number(4096), 0),
    cuda.cudaHostUnregister(mine),
    cuda.cudaHostUnregister(mine),
]

# ---- mapping ----
zero = ctypes.c_uint64(0)


def reserve(n):
    range_ = fresh()
    return cuda.cuMemAddressReserve(ctypes.byref(range_), number(n), number(0), zero, zero), range_.value


def u64(n):
    return ctypes.c_uint64(n)


status, space = reserve(8 * MIB)
said["reserved"] = [status, reserve(MIB)[0]]
handle, other = fresh(), fresh()
properties = (ctypes.c_int * 8)(1, 1, 1, 0)
assert cuda.cuMemCreate(ctypes.byref(handle), number(4 * MIB), properties, zero) == 0


def map_(where, n, offset=0):
    return cuda.cuMemMap(u64(where), number(n), number(offset), handle, zero)


said["mapped"] = {
    "outside": map_(space + 8 * MIB, 2 * MIB),
    "across the end": map_(space + 6 * MIB, 4 * MIB),
    "more than there is": map_(space, 4 * MIB, 2 * MIB),
    "right": map_(space + 2 * MIB, 4 * MIB),
    "over the beginning": map_(space, 4 * MIB),
    "over the end": map_(space + 4 * MIB, 2 * MIB),
}
said["freed_while_mapped"] = cuda.cuMemAddressFree(u64(space), number(8 * MIB))
descriptor = ctypes.c_int(-1)
assert cuda.cuMemExportToShareableHandle(ctypes.byref(descriptor), handle, 1, zero) == 0
used = calls.used_bytes()
assert cuda.cuMemImportFromShareableHandle(ctypes.byref(other), at(descriptor.value), 1) == 0
said["imported"] = [calls.used_bytes() - used, cuda.cuMemRelease(other), calls.used_bytes() - used]
said["no_fabric"] = cuda.cuMemExportToShareableHandle(ctypes.byref(descriptor), handle, 8, zero)
cuda.cuMemRelease(handle)
said["unmapped"] = [cuda.cuMemUnmap(u64(space + 2 * MIB), number(4 * MIB)), calls.used_bytes() - used]
said["freed"] = [cuda.cuMemAddressFree(u64(space), number(size)) for size in (2 * MIB, 8 * MIB, 8 * MIB)]

# ---- capture ----
stream, called = at(0x10000), []
callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: called.append(data))
assert cuda.cuStreamBeginCapture(stream, 0) == 0
assert cuda.cuStreamIsCapturing(stream, ctypes.byref(value)) == 0
assert cuda.cudaLaunchHostFunc(stream, callback, None) == 0
said["capturing"] = [value.value, len(called)]
assert cuda.cuEventRecord(at(1), stream) == 0
for i in range(5000):
    assert cuda.cudaStreamWaitEvent(at(0x20000 + 256 * i), at(1), 0) == 0
assert cuda.cudaStreamIsCapturing(at(0x20000 + 256 * 4999), ctypes.byref(value)) == 0
said["the_last_of_many"] = value.value
assert cuda.cuStreamEndCapture(stream, ctypes.byref(p)) == 0
assert cuda.cudaLaunchHostFunc(stream, callback, None) == 0
said["called_afterwards"] = len(called)

# ---- what is passed in stays as it is ----
sizes = (ctypes.c_size_t * 2)(11, 22)
cuda.cudaMemcpyBatchAsync(None, None, sizes, number(2), None, sizes, number(0), None)
options = (ctypes.c_int * 1)(9)
cuda.cuModuleLoadDataEx(ctypes.byref(p), None, 1, options, None)
said["passed_in"] = [*sizes, *options]

# ---- NCCL ----
data = (ctypes.c_byte * 4)(8, 8, 8, 8)
said["no_communicator"] = [
    cuda.ncclAllReduce(data, data, number(4), 0, 0, None, None),
    cuda.ncclAllGather(data, data, number(4), 0, None, None),
    cuda.ncclSend(data, number(4), 0, 0, None, None),
    cuda.ncclCommCount(None, ctypes.byref(value)),
]
comms = (ctypes.c_void_p * 256)()
assert cuda.ncclCommInitAll(comms, 256, (ctypes.c_int * 256)()) == 0
assert cuda.ncclAllReduce(data, data, number(4), 0, 4, at(comms[0]), None) == 0
said["average_of_256"] = list(data)
part = ctypes.create_string_buffer(b"p" * 4096, 4096)
whole = ctypes.create_string_buffer(4096 * 256)
assert cuda.ncclAllGather(part, whole, number(4096), 0, at(comms[0]), None) == 0
said["gathered"] = whole.raw == b"p" * (4096 * 256)
said["unfaithful"] = sorted(calls.unfaithful_calls())
print(json.dumps(said))

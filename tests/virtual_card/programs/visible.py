"""Which devices a program sees by CUDA_VISIBLE_DEVICES, and what NVML says of them."""

import ctypes
import json
import os
import sys

cuda = ctypes.CDLL(None)
UUID = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
MIB = 1 << 20


def show(visible):
    if visible is None:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible


def counted(function):
    n = ctypes.c_int(-1)
    function(ctypes.byref(n))
    return n.value


def nvml(index):
    handle = ctypes.c_void_p()
    assert cuda.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) == 0
    return handle


def used(index):
    memory = (ctypes.c_uint64 * 3)()
    assert cuda.nvmlDeviceGetMemoryInfo(nvml(index), memory) == 0
    return memory[2]


if sys.argv[1:] == ["torch"]:
    import torch

    before = torch.cuda.device_count()
    assert not torch.cuda.is_initialized()
    print(json.dumps({"before": before, "name": torch.cuda.get_device_name()}))
    sys.exit()

said = {"counts": {}, "nvml_counts": {}}
for visible in (
    None, "", "-1", "0", "7,3", "0, 1", "0,1,-1,2", "1,x,2", "x", "0,0", "1,2,1", "0,1,2,3,4", UUID, f"{UUID},GPU-11",
    f"{UUID},{UUID}", f"0,{UUID}", "MIG-c1", "0x",
):  # fmt: skip
    show(visible)
    said["counts"][str(visible)] = counted(cuda.cudaGetDeviceCount)
for visible in (None, "7,3", UUID):
    show(visible)
    said["nvml_counts"][str(visible)] = counted(cuda.nvmlDeviceGetCount_v2)
show(UUID)
text, properties = ctypes.create_string_buffer(80), ctypes.create_string_buffer(2048)
assert cuda.nvmlDeviceGetUUID(nvml(0), text, 80) == 0
assert cuda.cudaGetDeviceProperties(properties, 0) == 0
digits = properties.raw[256:272].hex()
parts = [digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]]
said["uuid"] = [text.value.decode(), "GPU-" + "-".join(parts)]
handle, index = ctypes.c_void_p(), ctypes.c_uint(9)
assert cuda.nvmlDeviceGetHandleByUUID(UUID.encode(), ctypes.byref(handle)) == 0
assert cuda.nvmlDeviceGetIndex(handle, ctypes.byref(index)) == 0
said["by_uuid"] = index.value
said["past_the_last"] = cuda.nvmlDeviceGetHandleByIndex_v2(4, ctypes.byref(handle))
show("7,3")
p = ctypes.c_void_p()
assert cuda.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(64 * MIB)) == 0
said["used_of_7_3"] = {index: used(index) for index in (3, 7, 0)}
assert cuda.cudaDeviceGetPCIBusId(text, 80, 0) == 0
said["bus_of_7_3"] = text.value.decode()
print(json.dumps(said))

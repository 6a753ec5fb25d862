"""What torch and NVML say about the card, and a few things that depend on it."""

import ctypes
import json

import torch

from dryfit.virtual_card import calls


class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def workspaces() -> list[int]:
    """Sizes of what the first matrix product took beside its tensors."""
    a = torch.empty(64, 64, device="cuda")
    torch.cuda.memory._record_memory_history(context=None)
    a @ a
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    return sorted({e["size"] for e in events if e["action"] == "alloc" and e["size"] > 1 << 20})


def attribute(number: int) -> int:
    value = ctypes.c_int()
    assert ctypes.CDLL(None).cudaDeviceGetAttribute(ctypes.byref(value), number, 0) == 0
    return value.value


def nvml() -> dict[str, object]:
    library = ctypes.CDLL("libnvidia-ml.so.1")
    library.nvmlInit_v2()
    handle, memory, text = ctypes.c_void_p(), Memory(), ctypes.create_string_buffer(96)
    assert library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)) == 0
    assert library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0
    assert library.nvmlDeviceGetName(handle, text, 96) == 0
    return {"name": text.value.decode(), "total": memory.total, "used": memory.used, "free": memory.free}


p = torch.cuda.get_device_properties(0)
print(
    json.dumps(
        {
            "name": torch.cuda.get_device_name(),
            "count": torch.cuda.device_count(),
            "capability": torch.cuda.get_device_capability(),
            "total": p.total_memory,
            "sms": p.multi_processor_count,
            "threads_per_sm": p.max_threads_per_multi_processor,
            "l2": getattr(p, "L2_cache_size", attribute(38)),  # not in 2.4
            "shared_per_block": attribute(97),
            "shared_per_sm": attribute(81),
            # Read from cudaDeviceProp where this torch shows it: its layout is another than the attribute's.
            "shared_per_sm_of_properties": getattr(p, "shared_memory_per_multiprocessor", attribute(81)),
            "shared_optin_of_properties": getattr(p, "shared_memory_per_block_optin", attribute(97)),
            "warp": attribute(10),
            "registers": attribute(82),
            "integrated": bool(p.is_integrated),
            "workspaces": workspaces(),
            "bf16": torch.cuda.is_bf16_supported(including_emulation=False),
            "nvml": nvml(),
            "used": calls.used_bytes(),
            "priorities": [torch.cuda.Stream(priority=-1).priority, torch.cuda.Stream().priority],
        }
    )
)

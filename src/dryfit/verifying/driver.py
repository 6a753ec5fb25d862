"""Asks the NVIDIA driver which cards there are, by itself: `python -m dryfit.verifying.driver` prints them as JSON.

It runs in a process of its own, because a process that has asked the driver cannot hand the card to a fork. Torch is
not needed, and no context is made on a card. The functions and numbers are those of cuda.h and nvml.h.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import sys
from collections.abc import Iterator
from typing import Any

NO_DRIVER, NOT_STARTED, NO_CARD = "no driver", "not started", "no card"

_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
_ATTRIBUTES = {  # CUdevice_attribute
    "sm_count": 16,
    "l2_bytes": 38,
    "max_threads_per_sm": 39,
    "major": 75,
    "minor": 76,
}


class _MemoryInfo(ctypes.Structure):
    """nvmlMemory_v2_t, whose `used` is nvidia-smi's: without what the driver reserves for itself."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("total", ctypes.c_ulonglong),
        ("reserved", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


_VERSION_2 = ctypes.sizeof(_MemoryInfo) | 2 << 24


def ask() -> dict[str, Any]:
    """The cards that CUDA_VISIBLE_DEVICES leaves, in CUDA's order, and the driver; or a `problem`, and its `reason`.

    `used_before_bytes` is None where the driver's monitor (NVML) does not say it.
    """
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return {"problem": NO_DRIVER, "reason": str(error)}
    status = cuda.cuInit(0)
    if status == _NO_DEVICE:
        return {"problem": NO_CARD, "reason": ""}
    if status:
        return {"problem": NOT_STARTED, "reason": _error(cuda, status)}
    count = ctypes.c_int()
    cuda.cuDeviceGetCount(ctypes.byref(count))
    if not count.value:
        return {"problem": NO_CARD, "reason": ""}
    version = ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(version))
    with _monitor() as monitor:
        return {
            "driver": _driver_version(monitor),
            "cuda": f"{version.value // 1000}.{version.value % 1000 // 10}",
            "is_virtual": hasattr(cuda, "dryfit_is_virtual_card"),
            "cards": [_card(cuda, monitor, number) for number in range(count.value)],
        }


def _card(cuda: ctypes.CDLL, monitor: ctypes.CDLL | None, number: int) -> dict[str, Any]:
    device = ctypes.c_int()
    cuda.cuDeviceGet(ctypes.byref(device), number)
    name = ctypes.create_string_buffer(256)
    cuda.cuDeviceGetName(name, len(name), device)
    total_bytes = ctypes.c_size_t()
    cuda.cuDeviceTotalMem_v2(ctypes.byref(total_bytes), device)
    found = {}
    for attribute, code in _ATTRIBUTES.items():
        value = ctypes.c_int()
        cuda.cuDeviceGetAttribute(ctypes.byref(value), code, device)
        found[attribute] = value.value
    identity = (ctypes.c_ubyte * 16)()
    cuda.cuDeviceGetUuid_v2(identity, device)
    return {
        "name": name.value.decode(errors="replace"),
        "sm": 10 * found.pop("major") + found.pop("minor"),
        **found,
        "total_bytes": total_bytes.value,
        "used_before_bytes": _used_bytes(monitor, bytes(identity).hex()),
    }


def _used_bytes(monitor: ctypes.CDLL | None, digits: str) -> int | None:
    """What is used of a card, or of the part of one that MIG makes of it, which then has a UUID of its own."""
    if monitor is None:
        return None
    uuid = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    for kind in ("GPU", "MIG"):
        handle = ctypes.c_void_p()
        if monitor.nvmlDeviceGetHandleByUUID(f"{kind}-{uuid}".encode(), ctypes.byref(handle)):
            continue
        info = _MemoryInfo(version=_VERSION_2)
        if hasattr(monitor, "nvmlDeviceGetMemoryInfo_v2") and not monitor.nvmlDeviceGetMemoryInfo_v2(
            handle, ctypes.byref(info)
        ):
            return int(info.used)
    return None


@contextlib.contextmanager
def _monitor() -> Iterator[ctypes.CDLL | None]:
    """The driver's monitor, NVML; None where there is none (WSL, some containers)."""
    try:
        monitor = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        yield None
        return
    if monitor.nvmlInit_v2():
        yield None
        return
    try:
        yield monitor
    finally:
        monitor.nvmlShutdown()


def _driver_version(monitor: ctypes.CDLL | None) -> str | None:
    text = ctypes.create_string_buffer(96)
    if monitor is None or monitor.nvmlSystemGetDriverVersion(text, len(text)):
        return None
    return text.value.decode(errors="replace")


def _error(cuda: ctypes.CDLL, status: int) -> str:
    words = ctypes.c_char_p()
    cuda.cuGetErrorString(status, ctypes.byref(words))
    return f"CUDA error {status}, {(words.value or b'unknown').decode(errors='replace')}"


if __name__ == "__main__":
    sys.stdout.write(json.dumps(ask()) + "\n")

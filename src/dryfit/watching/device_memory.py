"""What PyTorch's allocators hold on the devices of this process, for CUDA (and ROCm, which has that name) and XPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from dryfit.watching.torch_private import memory_counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What tensors hold of a device, and what PyTorch holds from its driver, in bytes."""

    allocated_bytes: int = 0
    reserved_bytes: int = 0

    def at_least(self, other: Memory) -> Memory:
        """The larger of each."""
        return Memory(
            allocated_bytes=max(self.allocated_bytes, other.allocated_bytes),
            reserved_bytes=max(self.reserved_bytes, other.reserved_bytes),
        )


def devices_in_use() -> list[torch.device]:
    """The devices that this process can have memory on; none where PyTorch has not begun to use one.

    Nothing is initialised by asking, so that a process can still be forked.
    """
    return [
        torch.device(kind, index) for kind in _kinds_in_use() for index in range(getattr(torch, kind).device_count())
    ]


def memory_of(device: torch.device) -> Memory:
    """What is held now."""
    backend = _backend(device)
    return Memory(
        allocated_bytes=backend.memory_allocated(device),
        reserved_bytes=backend.memory_reserved(device),
    )


def peak_of(device: torch.device) -> Memory:
    """The most that was held since the last `restart_peak`, or anyone else's `reset_peak_memory_stats`."""
    backend = _backend(device)
    return Memory(
        allocated_bytes=backend.max_memory_allocated(device),
        reserved_bytes=backend.max_memory_reserved(device),
    )


def allocated_bytes() -> int:
    """What tensors hold now on all devices together; 0 where none is in use."""
    return sum(_allocated_on(device) for device in devices_in_use())


def _allocated_on(device: torch.device) -> int:
    counts = memory_counts(device.index) if device.type == "cuda" else None
    return int(_backend(device).memory_allocated(device)) if counts is None else counts[0]


def restart_peak(device: torch.device) -> None:
    """Count peaks from what is held now."""
    _backend(device).reset_peak_memory_stats(device)


def give_back_unused() -> None:
    """Give the driver all segments without a block in use, on all devices."""
    for kind in _kinds_in_use():
        getattr(torch, kind).empty_cache()
    if torch.backends.mps.is_available():
        torch.mps.empty_cache()


def name_of(device: torch.device) -> str:
    """How the device is called, as in "NVIDIA L4"."""
    name: str = _backend(device).get_device_name(device)
    return name


def _kinds_in_use() -> list[str]:
    kinds = {kind: getattr(torch, kind, None) for kind in ("cuda", "xpu")}
    # Before PyTorch 2.5, torch.xpu does not say what is held.
    return [kind for kind, of in kinds.items() if of and hasattr(of, "memory_allocated") and of.is_initialized()]


def _backend(device: torch.device) -> Any:
    return getattr(torch, device.type)

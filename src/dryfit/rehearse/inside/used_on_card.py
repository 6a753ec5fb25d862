"""What is used of a real card, as the card itself says, and what torch says of it.

A real card keeps no peak, so it is asked whenever a window closes. What lies outside PyTorch's allocator then (the CUDA
context, kernels, NCCL) is taken to have been there when the allocator was at its peak.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dryfit.rehearse.inside import torch_private


def meter() -> Callable[[], int]:
    """A function that gives the most that was used of one card since the allocator's peaks were reset, in bytes.

    It counts everything on the card, that of other processes too; a card that PyTorch's allocator has taken nothing of
    is left alone, for asking would make a context there.
    """
    import torch

    read, _ = torch_private.memory_statistics()

    def used_bytes() -> int:
        if torch.cuda.is_current_stream_capturing():  # a CUDA graph is recorded, and the driver may not be asked
            return 0
        highest = 0
        for device in range(torch_private.device_count()):
            reserved = read(device)["reserved_bytes"]["all"]
            if reserved["peak"]:
                free_bytes, total_bytes = torch.cuda.mem_get_info(device)
                outside_bytes = total_bytes - free_bytes - reserved["current"]
                highest = max(highest, reserved["peak"] + outside_bytes)
        return highest

    return used_bytes


def facts() -> dict[str, Any]:
    """The cards as the program's torch sees them; {} where it has not used one."""
    import torch

    if not torch_private.cuda_is_initialized():
        return {}
    return {
        "name": torch.cuda.get_device_name(),
        "count": torch_private.device_count(),
        "cudnn": torch_private.cudnn_version(),
    }

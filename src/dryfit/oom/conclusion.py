"""What is known of a failure, and what was concluded from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dryfit.oom.message import OomMessage
from dryfit.units import GIB, format_bytes

# A CUDA context and the kernels loaded into it take 0.25 to 0.7 GiB, with cuDNN's and the desktop's part of a card
# less than this; what is above it is somebody's.
USUAL_OUTSIDE_BYTES = 1 * GIB


@dataclass(frozen=True, slots=True)
class Conclusion:
    """A cause, by the code of its rule, in a sentence or two, and the next step."""

    code: str
    claim: str
    advice: str


@dataclass(frozen=True, slots=True)
class Facts:
    """A message and the settings of the program that it comes from."""

    message: OomMessage
    settings: Mapping[str, str]

    @property
    def device(self) -> str:
        """The device in a sentence."""
        device, rank = self.message.device, self.message.rank
        name = "NPU" if self.message.backend == "npu" else "GPU"
        named = "The device" if device is None else f"{name} {device}"
        return named if rank is None else f"{named} (rank {rank})"

    @property
    def smaller(self) -> str:
        """How to lower the peak: a plan rehearses NVIDIA's cards."""
        if self.message.backend == "cuda":
            return "`dryfit plan YOUR_PROGRAM` rehearses what makes it smaller and says which of that fits"
        return "smaller batches, shorter or smaller inputs and checkpointing come first"

    @property
    def outside_bytes(self) -> int | None:
        """What of the device neither is free nor belongs to PyTorch's allocator; None if that is not known."""
        total, free, held = self.message.total_bytes, self.message.free_bytes, self.held_bytes
        if total is None or free is None or held is None:
            return None
        return max(total - free - held, 0)

    @property
    def held_bytes(self) -> int | None:
        """What PyTorch's allocator holds."""
        reserved = self.message.reserved_bytes
        return self.message.allocated_bytes if reserved is None else reserved


def percent(part_bytes: int, whole_bytes: int) -> str:
    """A share in words.

    >>> percent(1, 3), percent(1, 1000)
    ('33 %', '0.1 %')
    """
    share = 100 * part_bytes / whole_bytes if whole_bytes else 0.0
    return f"{share:.0f} %" if share >= 1 else f"{share:.1f} %"


def size(size_bytes: int | None) -> str:
    """A size in binary units; "an unknown amount" if the message does not give it."""
    return "an unknown amount" if size_bytes is None else format_bytes(size_bytes)

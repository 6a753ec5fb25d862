"""One out-of-memory message, as numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Literal

from dryfit.findings import Place

Certainty = Literal["certain", "likely", "not"]

_COUNTS = (
    "requested_bytes",
    "total_bytes",
    "free_bytes",
    "allocated_bytes",
    "reserved_bytes",
    "unused_bytes",
    "private_pool_bytes",
    "process_bytes",
    "allowed_bytes",
    "other_bytes",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OomMessage:
    """What one out-of-memory message says; what it does not say is None.

        for message in read_messages(log):
            print(message.rank, message.requested_bytes, message.free_bytes)

    `format` is the backend and the first version of PyTorch that wrote it so ("cuda 2.1"), or the library or the
    place of the failure ("cublas", "host"). `certainty` is "not" for what looks like such a message and is none.
    The sizes are bytes, as exact as the two places that PyTorch prints.

    Attributes:
        requested_bytes: what was asked of the device. For PyTorch's own allocator that is a segment, at least as
            large as the tensor: 2 MiB for up to 1 MiB, 20 MiB for up to 10 MiB, else a multiple of 2 MiB.
        total_bytes, free_bytes: of the device, by its driver, after PyTorch gave its unused segments back.
        allocated_bytes: in tensors.
        reserved_bytes: what PyTorch's allocator holds, always `allocated_bytes + unused_bytes`, whichever of them the
            format prints.
        unused_bytes: in pieces that no tensor uses, in segments that others do.
        private_pool_bytes: unused in the pools of CUDA graphs; PyTorch counts them as allocated.
        process_bytes: everything this process has on the device, with the context and libraries.
        other_processes: (process id, bytes). In a container a process may not know its own number; one that holds at
            least what PyTorch reserved, and must be this one for the sum to come out, counts as `process_bytes`.
        allowed_bytes: a limit that was set: a memory fraction, or MPS's high watermark.
        other_bytes: MPS's "other allocations": Metal memory of this process outside of PyTorch's buffers.
        advice_given: the settings that the message itself advises. It advises them whether or not they are set.
        place: the line of the program that failed, where a traceback ends in the message.
        count: how often the text has it.
    """

    format: str
    backend: str
    certainty: Certainty = "certain"
    device: int | None = None
    rank: int | None = None
    requested_bytes: int | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    unused_bytes: int | None = None
    private_pool_bytes: int | None = None
    process_bytes: int | None = None
    other_processes: tuple[tuple[int, int], ...] = ()
    allowed_bytes: int | None = None
    other_bytes: int | None = None
    advice_given: tuple[str, ...] = ()
    text: str = ""
    place: Place | None = None
    count: int = 1

    @property
    def numbers(self) -> Mapping[str, int]:
        """The sizes that the message gives, by name."""
        sizes = {name: getattr(self, name) for name in _COUNTS}
        return {name: size for name, size in sizes.items() if size is not None}

    def same_as(self, other: OomMessage) -> bool:
        """Whether both tell of the same failure: a log often has one twice, with and without its rank."""
        if self.rank != other.rank and None not in (self.rank, other.rank):
            return False
        return all(
            getattr(self, each.name) == getattr(other, each.name)
            for each in fields(self)
            if each.name not in ("rank", "text", "place", "count", "advice_given")
        )

"""Keeps what is known at each out-of-memory error, at the moment the allocator gives up.

The error itself is PyTorch's and goes on to the program, which may catch it; `ending` adds its text if it does not.
"""

from __future__ import annotations

import sys
from types import FrameType

from dryfit.places import is_of_the_program
from dryfit.rehearse.events import EventWriter
from dryfit.rehearse.inside import torch_private
from dryfit.rehearse.inside.phases import Progress


def watch(progress: Progress, writer: EventWriter) -> None:
    """Write an `oom` event whenever the allocator raises an out-of-memory error."""

    def observe(device: int, requested_bytes: int, allowed_bytes: int, free_bytes: int) -> None:
        stats = torch_private.current_statistics(device)
        file, line = _line_of_the_program(sys._getframe())
        writer.write(
            "oom",
            step=progress.step,
            steps_done=progress.steps_done,
            phase=progress.phase,
            device=device,
            requested_bytes=requested_bytes,
            allowed_bytes=allowed_bytes,
            free_bytes=free_bytes,
            allocated_bytes=stats["allocated_bytes"],
            reserved_bytes=stats["reserved_bytes"],
            file=file,
            line=line,
        )

    torch_private.observe_out_of_memory(observe)


def _line_of_the_program(frame: FrameType | None) -> tuple[str | None, int | None]:
    """The innermost line of the program's own; none in a thread of autograd's, which has no Python below."""
    while frame is not None:
        if is_of_the_program(frame.f_code.co_filename):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return None, None

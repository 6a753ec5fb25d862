"""What `dryfit.watch` says of an out-of-memory error that leaves its block; the error itself goes on as it is."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from dryfit import oom
from dryfit.watching.torch_private import has_memory_history, save_memory_snapshot

if TYPE_CHECKING:
    from dryfit.watching.watch import Watch

_SETTINGS = (
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
)


def is_one(error: BaseException) -> bool:
    """Whether an error, or one that it was raised from, says that memory ran out."""
    at: BaseException | None = error
    for _ in range(16):
        if at is None:
            return False
        if isinstance(at, (MemoryError, torch.OutOfMemoryError)):
            return True
        if isinstance(at, RuntimeError) and oom.says_out_of_memory(str(at)):
            return True
        at = at.__cause__
    return False


def explain(error: BaseException, watch: Watch, snapshot: Path | None) -> None:
    """Save what the allocator has recorded, and print what the error means and what the loop held."""
    watch.settle_peaks()
    lines = [f"dryfit: memory ran out in step {watch.step + 1}, {watch.phase}."]
    settings = {name: os.environ[name] for name in _SETTINGS if name in os.environ}
    for message in oom.read_messages(f"{type(error).__name__}: {error}")[:1]:
        finding = oom.verdict(message, settings=settings)
        lines += [f"{finding.code}: {finding.claim}", finding.advice]
    if snapshot is not None and has_memory_history():
        try:
            save_memory_snapshot(str(snapshot))
            lines.append(
                f"The allocator's last events are in {snapshot}: `dryfit explain {snapshot}` says who held what."
            )
        except OSError as failure:
            lines.append(f"The allocator's last events could not be saved to {snapshot}: {failure}.")
    print("\n".join([*lines, "", str(watch)]), file=sys.stderr)

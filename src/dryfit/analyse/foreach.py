"""What an optimizer's foreach implementation takes at the peak: it works on the tensors of all parameters at once."""

from __future__ import annotations

from collections.abc import Sequence

from dryfit.analyse.attribution import Attribution
from dryfit.analyse.holdings import Ledger
from dryfit.recording.model import OWNERS, TEMPORARY
from dryfit.recording.replay import Lifetimes
from dryfit.recording.stacks import Stacks
from dryfit.units import format_bytes

_TEMPORARY = OWNERS.index(TEMPORARY)
_LITTLE = 0.05


def temporaries_of_foreach(
    stacks: Stacks, alive: Sequence[int], lifetimes: Lifetimes, attribution: Attribution, ledger: Ledger
) -> str:
    """A sentence on the temporaries of `torch.optim`'s foreach implementations at the peak; "" if they are little.

    They are known by PyTorch's functions, `_multi_tensor_adamw` and the like. PyTorch's documentation of the optimizers
    says what the others take: `foreach=False` works on one parameter after the other, `fused=True` in place.
    """
    is_foreach = bytearray(len(stacks))
    of_frame = [frame.name.startswith("_multi_tensor_") and "/optim/" in frame.file for frame in stacks.all_frames]
    if not any(of_frame):
        return ""
    for stack in range(1, len(stacks)):
        is_foreach[stack] = of_frame[stacks.frame_of[stack]] or is_foreach[stacks.caller_of[stack]]
    size_bytes = sum(
        ledger.owned_bytes[index]
        for index in alive
        if attribution.owner[index] == _TEMPORARY and is_foreach[lifetimes.stack[index]]
    )
    if size_bytes < _LITTLE * sum(lifetimes.block_bytes[index] for index in alive) or not size_bytes:
        return ""
    return (
        f"{format_bytes(size_bytes)} of the peak are temporaries of the optimizer's foreach implementation, which "
        "works on all parameters at once; fused=True or foreach=False, where the optimizer has them, take less."
    )

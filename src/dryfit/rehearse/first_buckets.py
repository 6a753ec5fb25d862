"""DDP's first buckets, which a card may still hold in the step in which DDP has made its second ones.

In a rehearsal NCCL's watchdog looks after every backward pass, and they are gone by then (`inside.watchdog`). On a card
it looks every 100 ms: where a step begins sooner after the all-reduce of the one before, they stay until that step's
first all-reduce.
"""

from __future__ import annotations

from dryfit.rehearse.processes import Process
from dryfit.rehearse.total import FIRST_BUCKETS, Part
from dryfit.units import format_bytes

_WORTH_SAYING_BYTES = 1 << 20


def parts(process: Process) -> list[Part]:
    """By how much they may raise what nvidia-smi would show, over the peak that is there without them."""
    more_bytes = max((_more_bytes(process, each) for each in _made_anew(process)), default=0)
    if more_bytes < _WORTH_SAYING_BYTES:
        return []
    return [Part(what=FIRST_BUCKETS, low_bytes=0, expected_bytes=0, high_bytes=more_bytes)]


def notes(process: Process | None) -> list[str]:
    """Say when a card holds them."""
    found = parts(process) if process is not None else []
    if process is None or not found:
        return []
    largest = max(_made_anew(process), key=lambda each: _more_bytes(process, each))
    return [
        f"DDP makes its buckets anew in step {largest['step']}. A card that begins this step within 100 ms of the last "
        f"all-reduce still holds the first ones ({format_bytes(largest['bytes'])}) until it reduces again: the peak "
        f"may be up to {format_bytes(found[0].high_bytes)} higher."
    ]


def _made_anew(process: Process) -> list[dict[str, int]]:
    found: list[dict[str, int]] = (process.end or {}).get("first_buckets", [])
    return found


def _more_bytes(process: Process, made: dict[str, int]) -> int:
    """Of what tensors hold: memory that PyTorch has reserved for its peak has room for them at other times."""
    phases = dict(process.phases_of_steps).get(made["step"], {})
    in_forward, in_backward = (phases.get(name, [0])[0] for name in ("forward", "backward"))
    # Without values nobody sees the all-reduce, and it may come last.
    before_reducing = made.get("peak_before_reducing_bytes", in_backward)
    return max(in_forward, before_reducing) + made["bytes"] - process.allocated_bytes

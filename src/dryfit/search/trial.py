"""What a search keeps of one rehearsal: which value was tried, whether it fits, and the figures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dryfit.measures.facts import Facts
from dryfit.plain import to_plain
from dryfit.rehearse import growth
from dryfit.rehearse.endings import OUT_OF_MEMORY, WHOLE
from dryfit.rehearse.limits import HOST_MEMORY, INTERRUPTED, TIME
from dryfit.rehearse.result import UNKNOWN, Communication, RankPeak, Result
from dryfit.rehearse.settle import less_outside_bytes, more_outside_bytes

FITS, TOO_BIG, FAILED, STOPPED = "fits", "too big", "failed", "stopped"

# Exceptions that no other value of a placeholder takes away.
_FOR_GOOD = ("SyntaxError", "IndentationError", "ImportError", "ModuleNotFoundError", "FileNotFoundError", "NameError")
_STATUS_OF_WRONG_ARGUMENTS = 2  # as argparse, click and absl exit


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One value, rehearsed. All sizes are bytes.

    `kind` is "fits"; "too big": it ran out of memory; "failed": it ended by another error; or "stopped": a limit of
    dryfit's ended it. Of what fits, `peak_total_bytes` is what nvidia-smi would show by the memory expected outside
    PyTorch's allocator, and the peaks of what does not are those until its end. There may be `margin_bytes` more
    outside than is expected, or `margin_below_bytes` less; `is_close` says that this could turn the answer. `phase` is
    where the peak, or the out-of-memory error, was; `is_caught` an error that the program caught. `for_good` marks a
    failure that another value will not take away. `phase_peaks`, `measures`, `communication`, `ranks` and `facts` are
    as a `Result` has them; `rank` is the one whose figures these are, None without a world. `value` is 0 where nothing
    was varied.
    """

    value: int = 0
    kind: str
    sentence: str
    peak_allocated_bytes: int = 0
    peak_reserved_bytes: int = 0
    peak_total_bytes: int = 0
    step: int | None = None
    phase: str | None = None
    requested_bytes: int | None = None
    free_bytes: int | None = None
    is_close: bool = False
    margin_bytes: int = 0
    margin_below_bytes: int = 0
    is_caught: bool = False
    for_good: bool = False
    error: str | None = None
    how: str = ""
    sizes_unknown: bool = False
    growth_bytes: int = 0
    seconds: float = 0.0
    phase_peaks: dict[str, int] = field(default_factory=dict, hash=False)
    measures: dict[str, bool] = field(default_factory=dict, hash=False)
    communication: dict[str, Communication] = field(default_factory=dict, hash=False)
    rank: int | None = None
    ranks: tuple[RankPeak, ...] = ()
    facts: Facts | None = field(default=None, hash=False, repr=False)
    from_cache: bool = False

    def to_dict(self) -> dict[str, Any]:
        values: dict[str, Any] = to_plain(self)
        return values


def trial_of(value: int, result: Result, *, reserve_bytes: int = 0) -> Trial:
    """What a rehearsal on a named card, with `reserve_bytes` of it taken, says of a value.

    An out-of-memory error that the program caught counts as one that it did not: whatever it did then, such as halving
    its batch, it did not run with this value.
    """
    oom, ending = result.out_of_memory, result.ending
    return Trial(
        value=value,
        kind=_kind(result),
        sentence=ending.sentence,
        peak_allocated_bytes=result.peak_allocated_bytes,
        peak_reserved_bytes=result.peak_reserved_bytes,
        peak_total_bytes=result.peak_total_bytes,
        step=oom.step if oom is not None else result.peak_step,
        phase=oom.phase if oom is not None else result.peak_phase,
        requested_bytes=oom.requested_bytes if oom is not None else None,
        free_bytes=oom.free_bytes if oom is not None else None,
        is_close=_is_close(result, reserve_bytes),
        margin_bytes=more_outside_bytes(result),
        margin_below_bytes=less_outside_bytes(result),
        is_caught=oom is not None and ending.how != OUT_OF_MEMORY,
        for_good=_is_for_good(result),
        error=f"{ending.error_type}: {ending.error_message}" if ending.error_type else None,
        how=ending.how,
        sizes_unknown=result.is_apart_from_unknowns,
        growth_bytes=growth.of_result(result),
        seconds=result.wall_seconds,
        phase_peaks=dict(result.phase_peaks),
        measures=dict(result.measures),
        communication=dict(result.communication),
        rank=result.world.rank if result.world is not None else None,
        ranks=tuple(result.ranks),
        facts=result.facts,
    )


def _kind(result: Result) -> str:
    how = result.ending.how
    if how in (TIME, HOST_MEMORY, INTERRUPTED, "fell silent") or (how == OUT_OF_MEMORY and result.verdict == UNKNOWN):
        return STOPPED  # the last: this process ran out of addresses, not the card of memory
    if result.out_of_memory is not None or how == OUT_OF_MEMORY:
        return TOO_BIG
    return FITS if how in WHOLE and result.peak_total_bytes else FAILED


def _is_close(result: Result, reserve_bytes: int) -> bool:
    """Whether the margin of the memory outside the allocator decides; a reserve as large as that settles it."""
    assert result.card is not None
    total_bytes, margin_bytes = result.card["total_bytes"], more_outside_bytes(result)
    if reserve_bytes >= margin_bytes:
        return False
    oom = result.out_of_memory
    if oom is not None:
        lacking_bytes = oom.requested_bytes - oom.free_bytes
        return bool(oom.allowed_bytes >= total_bytes and lacking_bytes <= less_outside_bytes(result))
    return bool(result.peak_total_bytes + margin_bytes > total_bytes)


def _is_for_good(result: Result) -> bool:
    ending = result.ending
    if ending.error_type is not None:
        return ending.error_type in _FOR_GOOD
    if ending.how in WHOLE:
        return not result.peak_total_bytes  # nothing was put on the card
    return ending.how == "raised" and ending.exit_status == _STATUS_OF_WRONG_ARGUMENTS

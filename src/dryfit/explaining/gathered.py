"""What has gathered on a card: from step to step, or from one batch of an evaluation to the next."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from dryfit.analyse.analysis import Analysis
from dryfit.analyse.footprint import FailedRequest, Footprint, Growth
from dryfit.findings import Evidence, Finding, Place
from dryfit.places import as_seen_from_here
from dryfit.recording.model import EVALUATION
from dryfit.units import KIB, format_bytes

# Less is no leak that fills a card: 1 GiB in 100,000 steps. Of a card that is full it has to be a twentieth.
_LEAST_BYTES_PER_STEP = 10 * KIB
_LEAST_SHARE = 20
# Of a model, the same line makes one result for each of a few layers; an evaluation that gathers does for each batch.
_FEWEST_RESULTS = 3


def what_gathered(analysis: Analysis, failed: FailedRequest | None, failed_at: Place | None) -> Finding | None:
    """What the program should have let go of, where the recording shows it; None where it does not.

    It comes before every other cause: with what has gathered still there, any other remedy only puts the failure off.
    """
    growth = analysis.footprint.growth
    if growth is not None:
        left = _left_by_step(analysis, growth, len(analysis.trace.events) if failed is None else failed.event)
        if _is_left_behind(growth, left) and _matters(growth, analysis.footprint, failed):
            return _growth(growth, failed)
    return _results_of_an_evaluation(analysis, failed, failed_at) if failed is not None else None


def _left_by_step(analysis: Analysis, growth: Growth, event: int) -> list[int]:
    """The bytes that each step of the growth, but for the first, has made and that are still there at an event."""
    marks = analysis.trace.marks
    begins = [mark.event for mark in marks]
    left = dict.fromkeys(range(growth.first_step + 1, growth.last_step + 1), 0)
    lifetimes = analysis.replay.lifetimes
    for begin, end, size in zip(lifetimes.begin, lifetimes.end, lifetimes.block_bytes, strict=True):
        place = bisect_right(begins, begin) - 1
        if begin < event <= end and place >= 0 and marks[place].step in left:
            left[marks[place].step] += size
    return list(left.values())


def _is_left_behind(growth: Growth, left: Sequence[int]) -> bool:
    """Whether each step left something for good: where batches become longer, only the last one's tensors are there."""
    return all(2 * size_bytes >= growth.bytes_per_step for size_bytes in left[:-1])


def _gathered_bytes(growth: Growth) -> int:
    return growth.bytes_per_step * (growth.last_step - growth.first_step)


def _matters(growth: Growth, footprint: Footprint, failed: FailedRequest | None) -> bool:
    if growth.bytes_per_step < _LEAST_BYTES_PER_STEP:
        return False
    return failed is None or _LEAST_SHARE * _gathered_bytes(growth) >= footprint.peak_reserved_bytes


def _growth(growth: Growth, failed: FailedRequest | None) -> Finding:
    gathered_bytes = _gathered_bytes(growth)
    line = growth.lines[0] if growth.lines and growth.lines[0].file else None
    made = f", made at {as_seen_from_here(line.file)}:{line.line}" if line else ""
    claim = (
        f"Each step leaves {format_bytes(growth.bytes_per_step)} more on the card than the one before, from step "
        f"{growth.first_step} to step {growth.last_step}: {format_bytes(gathered_bytes)} by now{made}."
    )
    if failed is not None:
        enough = gathered_bytes + failed.free_bytes >= failed.requested_bytes
        would = "would have been served without them" if enough else "met a card that they had filled"
        claim += f" The request of {format_bytes(failed.requested_bytes)} that failed in step {failed.step} {would}."
    return Finding(
        code="DF114",
        claim=claim,
        advice=(
            "Find what keeps them, such as a list of outputs or a loss summed with its graph: `dryfit run "
            "YOUR_PROGRAM`, or `dryfit.watch` around the loop, names it and its line."
        ),
        place=Place(file=line.file, line=line.line, function=line.function) if line else None,
        evidence=Evidence(
            size_bytes=gathered_bytes,
            bytes_per_step=growth.bytes_per_step,
            first_step=growth.first_step,
            last_step=growth.last_step,
        ),
    )


def _results_of_an_evaluation(analysis: Analysis, failed: FailedRequest, place: Place | None) -> Finding | None:
    """Results that the very line whose request failed made before, and that are still there."""
    if failed.phase != EVALUATION:
        return None
    lifetimes = analysis.replay.lifetimes
    stack = analysis.trace.events.stack[failed.event]
    kept = [
        size
        for begin, end, made_by, size in zip(
            lifetimes.begin, lifetimes.end, lifetimes.stack, lifetimes.block_bytes, strict=True
        )
        if made_by == stack and 0 <= begin < failed.event < end
    ]
    if len(kept) < _FEWEST_RESULTS or 2 * sum(kept) < failed.allocated_bytes:
        return None
    where = f" at {as_seen_from_here(place.file)}:{place.line}" if place else ""
    return Finding(
        code="DF202",
        claim=(
            f"{len(kept)} earlier results of the evaluation{where} are still on the card, {format_bytes(sum(kept))} of "
            f"{format_bytes(failed.allocated_bytes)} in tensors, when the next one needs "
            f"{format_bytes(failed.requested_bytes)}: they gather from batch to batch."
        ),
        advice=(
            "Evaluate under torch.no_grad(), and keep of each batch only what is needed: its metric, or output.cpu()."
        ),
        place=place,
        evidence=Evidence(size_bytes=sum(kept), numbers={"requested_bytes": failed.requested_bytes}),
    )

"""When a rehearsal has seen enough. Pure arithmetic on the peaks of the steps so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence

LEAST_STEPS = 3
MOST_STEPS = 20
WATCHED_STEPS = 12
"""The least steps of a rehearsal that looks for slow growth."""
STEADY_STEPS = 2
# Two steps of the same shapes can differ by what is left over of split blocks, up to 1 MiB each.
_SAME_BYTES, _SAME_SHARE = 2 << 20, 0.002


def seen_enough(
    peaks: Sequence[tuple[int, int]],
    steps: int | None,
    *,
    all_have_stepped_twice: bool = True,
    least_steps: int = LEAST_STEPS,
    wants_more: Callable[[], bool] = lambda: False,
    period: int = 1,
) -> str | None:
    """Say why to stop after these steps: "steps", "steady" or "most steps"; None to go on.

    >>> seen_enough([(5, 8), (7, 8), (7, 8)], None), seen_enough([(5, 8), (7, 8), (7, 8), (7, 8)], None)
    (None, 'steady')

    `peaks` has (allocated, reserved) bytes of each step, the first step first. `steps` is what was asked for: a
    number, 0 for all, None for «until steady»: the highest peak is at least two steps old, those two steps are alike
    (batches of changing shapes are not), and every optimiser has stepped twice (once to make its states, once to hold
    them). Two kinds of steps that take turns, as where every second one evaluates, are steady once the last four are no
    higher than those before, and each of them is like the last but one. Three steps on the card are the least that can
    tell; twenty the most, so that a program that never becomes steady ends too. `wants_more` is asked once they are
    steady: whether there is something else to be seen in more.
    With a `period` above 1 the batches differ, in an order that repeats itself after so many steps: not two steps are
    compared then, but the highest of the last period and of the one before it.
    """
    if steps is not None:
        return "steps" if steps and len(peaks) >= steps else None
    on_the_card = [peak for peak in peaks if any(peak)]
    at_the_end = len(on_the_card or peaks) >= MOST_STEPS
    enough = len(on_the_card) >= max(least_steps, 2 * period) and all_have_stepped_twice
    if enough and _is_steady(on_the_card, period) and (at_the_end or not wants_more()):
        return "steady"
    return "most steps" if at_the_end else None


def _is_steady(peaks: Sequence[tuple[int, int]], period: int) -> bool:
    if period == 1:
        return _is_settled(peaks) or _takes_turns(peaks)
    early, late = peaks[:-period], peaks[-period:]
    return _alike([_highest(early[-period:]), _highest(late)]) and _is_no_higher(late, early)


def _is_settled(peaks: Sequence[tuple[int, int]]) -> bool:
    early, late = peaks[:-STEADY_STEPS], peaks[-STEADY_STEPS:]
    return _alike(late) and _is_no_higher(late, early)


def _takes_turns(peaks: Sequence[tuple[int, int]]) -> bool:
    """Whether steps of two kinds came twice each, one after the other, and were no higher than the steps before."""
    early, late = peaks[:-4], peaks[-4:]
    return bool(early) and _alike(late[::2]) and _alike(late[1::2]) and _is_no_higher(late, early)


def _highest(peaks: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return max(peaks, default=(0, 0))


def _alike(peaks: Sequence[tuple[int, int]]) -> bool:
    allocated = [peak[0] for peak in peaks]
    return max(allocated) - min(allocated) <= max(_SAME_BYTES, _SAME_SHARE * max(allocated))


def _is_no_higher(late: Sequence[tuple[int, int]], early: Sequence[tuple[int, int]]) -> bool:
    return all(max(peak[i] for peak in late) <= max(peak[i] for peak in early) for i in (0, 1))

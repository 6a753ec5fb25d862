"""Which values to rehearse next, and what the rehearsals so far say: pure functions of what is known.

    known = {}
    while wanted := next_values(values, known, room_bytes=room_bytes, width=2):
        known |= rehearse(wanted)
    found = conclusion(values, known)

Nothing is concluded from a line: it only says where to look. The search ends when the largest value that fits and the
next one, which does not, have both been rehearsed.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dryfit.search.law import crossing
from dryfit.search.trial import FAILED, FITS, TOO_BIG, Trial

Known = Mapping[int, Trial]

# The first values, as multiples of the lowest: the least there is, and enough more to see what each one costs.
_FIRST = (1, 4, 16)
# Where the first fail by another error than memory: numbers that most others divide.
_DIVIDED_BY_MANY = (8, 60, 64, 96)
# How far beyond what has fitted a line through few points is followed, and through more.
_BOLD, _BOLDER = 16, 64
# After so many rehearsals the line has shown that it leads nowhere, and halving is sure.
_PATIENCE = 10
# So many failures in a row by another error than memory are taken as the end of what can be tried.
_FAILURES_IN_A_ROW = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What rehearsals say of a range of values.

    `largest` is the largest that fits, None if none does. `beyond` is the next larger value that was rehearsed and does
    not, None where the range ends with `largest`. `multiple_of` is above 1 where only multiples of that number work,
    as far as was tried. `out_of_order` are values that do not fit although a larger one does.
    """

    largest: int | None
    beyond: int | None
    multiple_of: int = 1
    out_of_order: tuple[int, ...] = ()


def next_values(
    values: Sequence[int], known: Known, *, room_bytes: int, width: int, like: Sequence[tuple[int, int]] = ()
) -> list[int]:
    """The values to rehearse next, at most `width` of them, the most telling first; none when all is known.

    `values` ascend, `room_bytes` is what the peak of what fits may come to, and `like` are pairs of a value and its
    peak from rehearsals that are alike, such as those on another card.
    """
    fitting = sorted(value for value, trial in known.items() if trial.kind == FITS)
    if not known:
        wanted = _first(values, like, room_bytes, width)
    elif not fitting:
        wanted = _without_any_that_fits(values, known)
    else:
        wanted = _around(values, known, fitting, room_bytes, width, like)
    return wanted[: max(width, 1)]


def conclusion(values: Sequence[int], known: Known) -> Found:
    """What the rehearsals say; final once `next_values` has no more to ask."""
    fitting = [value for value, trial in known.items() if trial.kind == FITS]
    if not fitting:
        return Found(largest=None, beyond=min(known, default=None))
    largest = max(fitting)
    return Found(
        largest=largest,
        beyond=min((value for value in known if value > largest), default=None),
        multiple_of=_multiple_of(known),
        out_of_order=tuple(sorted(v for v, trial in known.items() if v < largest and trial.kind == TOO_BIG)),
    )


def _first(values: Sequence[int], like: Sequence[tuple[int, int]], room_bytes: int, width: int) -> list[int]:
    expected = _end_of_line(like, room_bytes)
    if expected is not None:
        place = max(_place_at_most(values, expected), 0)
        return list(values[place : place + 2])
    wanted = [values[max(_place_at_most(values, values[0] * factor), 0)] for factor in _FIRST[: max(2, width)]]
    return list(dict.fromkeys(wanted))


def _without_any_that_fits(values: Sequence[int], known: Known) -> list[int]:
    """Nothing fits yet: look below what is too big; where all failed by another error, look for values that work."""
    if values[0] not in known:  # where another card's rehearsals said to begin, it was too much, but not by far
        nearby = values[max(_place_at_most(values, min(known) * 3 // 4), 0)]
        return list(dict.fromkeys([values[0], nearby]))
    too_big = [value for value, trial in known.items() if trial.kind != FAILED]
    if too_big:
        below = values[: _place_at_most(values, min(too_big) - 1) + 1]
        failed = [value for value in below if value in known]
        if not failed:
            return []
        others = [value for value in below if value not in known]
        # Between values that fail and one that is too big there may be some that work and fit.
        return _spread(others, 2) if len(failed) < 2 * _FAILURES_IN_A_ROW else []
    if any(trial.for_good for trial in known.values()):
        return []
    several = [value for value in _DIVIDED_BY_MANY if value in values and value not in known]
    others = [value for value in values if value not in known] if len(values) <= len(_DIVIDED_BY_MANY) else []
    return several or others


def _around(
    values: Sequence[int],
    known: Known,
    fitting: Sequence[int],
    room_bytes: int,
    width: int,
    like: Sequence[tuple[int, int]],
) -> list[int]:
    """Close in on the end of what fits, from the largest that fits and the smallest above it that does not."""
    low = fitting[-1]
    high = min((value for value in known if value > low), default=None)
    factor = _multiple_of(known)
    between = [v for v in values[_place_at_most(values, low) + 1 :] if v % factor == 0 and (high is None or v < high)]
    if not between:
        return _at_the_end(values, known, low, factor)
    if len(known) >= _PATIENCE:
        return _spread(between, width)
    peaks = dict(like if len(fitting) < 2 else ()) | {value: known[value].peak_total_bytes for value in fitting}
    expected = _end_of_line([(value, peak) for value, peak in peaks.items() if value <= low], room_bytes)
    most = low * (_BOLD if len(fitting) < 3 else _BOLDER)
    if expected is None:
        expected = low * 4
    place = max(_place_at_most(between, min(expected, most)), 0)
    second = place + 1
    if high is None and expected > most:  # a line through few points: see half of the way too
        second = _place_at_most(between, math.isqrt(low * between[place]))
    elif high is None and place == 0:  # by the line nothing more fits: if it does, the line says nothing
        second = _place_at_most(between, low + max(2, low // 8))
    elif second == len(between) or place == 0:
        second = len(between) // 2
    wanted = [between[each] for each in (place, second) if 0 <= each < len(between)]
    return list(dict.fromkeys([*wanted, *_spread(between, width)]))


def _at_the_end(values: Sequence[int], known: Known, low: int, factor: int) -> list[int]:
    """See that nothing lies between or beyond: other divisors than the one found, values after some that fail."""
    too_big = [value for value, trial in known.items() if value > low and trial.kind != FAILED]
    nearer = dict.fromkeys([*(low + factor // prime for prime in _primes_of(factor)), low + 1])
    wanted = [v for v in nearer if v in values and v not in known and v < min(too_big, default=low + factor)]
    if wanted:
        return wanted
    beyond = [value for value in values[_place_at_most(values, low) + 1 :] if value % factor == 0]
    for value in beyond[:_FAILURES_IN_A_ROW]:
        if value not in known:
            return [value]
        if known[value].kind != FAILED:
            break
    return []


def _end_of_line(points: Sequence[tuple[int, int]], room_bytes: int) -> int | None:
    """Where the line through the last point and one at half of it or less leaves the room; None without such a line."""
    points = sorted(points)
    if len(points) < 2:
        return None
    last = points[-1]
    near = [point for point in points if point[0] <= last[0] // 2]
    return crossing(near[-1] if near else points[0], last, room_bytes)


def _multiple_of(known: Known) -> int:
    """The number whose multiples work, where values above some that fit fail by another error than memory.

    What runs out of memory works too, unless it does so before it comes to the check that it would have failed: where
    it leaves no such number, only what fits counts.
    """
    fitting, too_big, failed = (
        [value for value, trial in known.items() if trial.kind == kind] for kind in (FITS, TOO_BIG, FAILED)
    )
    if not fitting or not any(value > min(fitting) for value in failed):
        return 1
    factors = (math.gcd(*fitting, *too_big), math.gcd(*fitting))
    return next((factor for factor in factors if all(value % factor for value in failed)), 1)


def _place_at_most(values: Sequence[int], limit: int) -> int:
    """The place of the largest value that is not above a limit, -1 if all are."""
    return bisect.bisect_right(values, limit) - 1


def _spread(values: Sequence[int], width: int) -> list[int]:
    """So many of these values, evenly spread: they cut the range into equal parts."""
    if len(values) <= width:
        return list(values)
    return [values[len(values) * (part + 1) // (width + 1)] for part in range(width)]


def _primes_of(number: int) -> list[int]:
    """Its prime factors.

    >>> _primes_of(12), _primes_of(1)
    ([2, 3], [])
    """
    primes, factor = [], 2
    while number > 1:
        if number % factor == 0:
            primes.append(factor)
            while number % factor == 0:
                number //= factor
        factor += 1
    return primes

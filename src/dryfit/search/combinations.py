"""Which combinations of measures to rehearse next, and what those rehearsed say: pure functions of what is known.

    space = space_of(rungs, as_it_is, together=go_together, order=order)
    known = {0: as it is, 1: the first rung, 2: the second, ...}
    while wanted := next_combinations(space, known, room_bytes=room_bytes, width=2):
        known |= rehearse(wanted)
    searched(space, known)

A combination is a number: bit n is set where `space.rungs[n]` is on; 0 is the program as it is. Nothing is concluded
from sums of what measures save alone: they only say where to look. The cheapest combination that was rehearsed and fits
is the answer once every cheaper one has been rehearsed too, or is ruled out: one that is rehearsed and too big holds no
more than it, as far as its measures show alone. Those ruled out are rehearsed last, while there is room for more.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from dryfit.search.trial import FITS, TOO_BIG

Combination = int
Order = tuple[float, ...]  # what prices are compared by
Key = tuple[Order, int, Combination]
Known = Mapping[Combination, "Seen"]

# More combinations than this are not looked through: only those of fewer measures are.
_MOST_COMBINATIONS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One measure with one of its options, and its peaks where it is on alone.

    `place` counts the options of a measure from 0, the cheapest; `phase_peaks` are allocated bytes.
    """

    word: str
    measure: str
    place: int
    phase_peaks: Mapping[str, int]
    peak_total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the rehearsal of a combination said: "fits", "too big", or anything else for no answer.

    `allocated_bytes` is its peak where there is no limit; `order` its price, once that was counted.
    """

    kind: str
    allocated_bytes: int
    order: Order | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The combinations to search, `by_price`, the cheapest first, without the program as it is.

    `keys` are what they are sorted by. `largest` is how many measures are on in the largest of them, and `is_whole`
    whether that is all there are. `expected_bytes` is what is expected to be allocated by the sum of what the measures
    save alone, and `savings_bytes` the most that they could save.
    """

    rungs: tuple[Rung, ...]
    as_it_is: Rung
    by_price: tuple[Combination, ...]
    keys: Mapping[Combination, Key]
    expected_bytes: Mapping[Combination, int]
    savings_bytes: Mapping[Combination, int]
    largest: int
    is_whole: bool

    def words(self, combination: Combination) -> tuple[str, ...]:
        """The measures of a combination, as `dryfit run --with` takes them."""
        return tuple(rung.word for rung in self.members(combination))

    def members(self, combination: Combination) -> list[Rung]:
        return [rung for place, rung in enumerate(self.rungs) if combination >> place & 1]

    def key(self, combination: Combination, order: Order | None) -> Key:
        """What a combination is sorted by, where its price was counted."""
        estimated = self.keys[combination]
        return estimated if order is None else (order, *estimated[1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """What was searched. Of `combinations` of two measures or more, `rehearsed` were, `unanswered` of them in vain.

    `cheapest` is the cheapest that fits, of any number of measures, None where none does. Of `cheaper` combinations
    than that, or of all, `ruled_out` were not rehearsed and hold no less than one that is too big; `left` were not
    rehearsed for want of time.
    """

    cheapest: Combination | None
    combinations: int
    rehearsed: int
    unanswered: int
    cheaper: int
    ruled_out: int
    left: int


def space_of(
    rungs: Sequence[Rung],
    as_it_is: Rung,
    *,
    together: Callable[[Rung, Rung], bool],
    order: Callable[[Sequence[Rung]], Order],
    most: int = _MOST_COMBINATIONS,
) -> Space:
    """All combinations of rungs that go together, one of each measure; of fewer measures where these are too many.

    `order` says what the price of rungs is expected to be. Of equal prices the weaker rungs come first.
    """
    names = sorted({name for rung in (as_it_is, *rungs) for name in rung.phase_peaks})
    base = [as_it_is.phase_peaks.get(name, 0) for name in names]
    saved = [[had - rung.phase_peaks.get(name, 0) for name, had in zip(names, base, strict=True)] for rung in rungs]
    fellows = [
        sum(1 << n for n, two in enumerate(rungs) if two.measure != one.measure and together(one, two)) for one in rungs
    ]
    everyone = (1 << len(rungs)) - 1
    found: dict[Combination, list[int]] = {}
    newest: dict[Combination, tuple[list[int], int]] = {0: ([0] * len(names), everyone)}
    largest, is_whole = 0, True
    while newest:
        larger: dict[Combination, tuple[list[int], int]] = {}
        for combination, (savings, open_) in newest.items():
            for n in range(combination.bit_length(), len(rungs)):
                if open_ >> n & 1:
                    sums = [a + b for a, b in zip(savings, saved[n], strict=True)]
                    larger[combination | 1 << n] = (sums, open_ & fellows[n])
            if len(found) + len(larger) > most:
                break
        if len(found) + len(larger) > most:
            is_whole = False
            break
        largest += bool(larger)
        found |= {combination: savings for combination, (savings, _) in larger.items()}
        newest = larger
    most_saved = [max(0, *each, 0) for each in saved]
    keys = {}
    for combination in found:
        members = [rung for n, rung in enumerate(rungs) if combination >> n & 1]
        keys[combination] = (order(members), sum(rung.place for rung in members), combination)
    return Space(
        rungs=tuple(rungs),
        as_it_is=as_it_is,
        by_price=tuple(sorted(found, key=keys.__getitem__)),
        keys=keys,
        expected_bytes={
            each: max((had - less for had, less in zip(base, savings, strict=True)), default=0)
            for each, savings in found.items()
        },
        savings_bytes={each: sum(most_saved[n] for n in range(len(rungs)) if each >> n & 1) for each in found},
        largest=largest,
        is_whole=is_whole,
    )


def next_combinations(space: Space, known: Known, *, room_bytes: int, width: int) -> list[Combination]:
    """The combinations to rehearse next, at most `width`, the most telling first; none when all is known.

    `room_bytes` is what may be allocated. Asked on and on, this comes to all that are cheaper than the cheapest that
    fits; what `searched` then says is true after any of these.
    """
    cheapest = _cheapest(space, known)
    cheaper = [each for each in _cheaper(space, known, cheapest) if each not in known]
    bounds = _bounds(space, known)
    open_ = [each for each in cheaper if not _is_ruled_out(each, bounds)]
    if not open_:
        return _unconfirmed(space, cheapest, cheaper)[:width]
    expected = _expected(space, known, open_)
    promising = [each for each in open_ if expected[each] <= room_bytes]
    wanted = promising[:1] if cheapest is None else promising[:width]
    for each in sorted(open_, key=lambda each: (expected[each], space.keys[each])):
        if len(wanted) >= width:
            break
        # What the others will rule out, should they be too big, is not worth rehearsing beside them.
        if each not in wanted and not _is_ruled_out(each, [_bound(space, other) for other in wanted]):
            wanted.append(each)
    return wanted


def searched(space: Space, known: Known) -> Searched:
    """What the rehearsals say, and how far they went."""
    cheapest = _cheapest(space, known)
    cheaper = [each for each in _cheaper(space, known, cheapest) if _is_of_several(each)]
    bounds = _bounds(space, known)
    missing = [each for each in cheaper if each not in known]
    ruled_out = sum(_is_ruled_out(each, bounds) for each in missing)
    several = [each for each in known if _is_of_several(each)]
    return Searched(
        cheapest=cheapest,
        combinations=sum(map(_is_of_several, space.by_price)),
        rehearsed=len(several),
        unanswered=sum(known[each].kind not in (FITS, TOO_BIG) for each in several),
        cheaper=len(cheaper),
        ruled_out=ruled_out,
        left=len(missing) - ruled_out,
    )


def _is_of_several(combination: Combination) -> bool:
    return combination & (combination - 1) != 0


def _cheapest(space: Space, known: Known) -> Combination | None:
    fitting = (each for each, seen in known.items() if seen.kind == FITS and each)
    return min(fitting, key=lambda each: space.key(each, known[each].order), default=None)


def _cheaper(space: Space, known: Known, cheapest: Combination | None) -> Sequence[Combination]:
    """Those that are expected to cost less than the cheapest that fits; all where none does."""
    if cheapest is None:
        return space.by_price
    key = space.key(cheapest, known[cheapest].order)
    end = bisect.bisect_left(space.by_price, key, key=space.keys.__getitem__)
    return [each for each in space.by_price[:end] if each != cheapest]


@dataclass(frozen=True, slots=True)
class _Bound:
    """What one combination rules out by being too big: those of `allowed` rungs alone, with one of each `required`."""

    allowed: int
    required: tuple[int, ...]


def _bounds(space: Space, known: Known) -> list[_Bound]:
    return [_bound(space, each) for each, seen in known.items() if seen.kind == TOO_BIG]


def _bound(space: Space, combination: Combination) -> _Bound:
    """A combination rules out those that have, in place of each of its measures, one that alone takes no less."""
    allowed, required = 0, []
    for measure in dict.fromkeys(rung.measure for rung in space.rungs):
        own = [(n, rung) for n, rung in enumerate(space.rungs) if rung.measure == measure]
        on = next((rung for n, rung in own if combination >> n & 1), space.as_it_is)
        covered = sum(1 << n for n, rung in own if _takes_no_more(on, rung))
        allowed |= covered
        if not _takes_no_more(on, space.as_it_is):
            required.append(covered)
    return _Bound(allowed, tuple(required))


def _takes_no_more(one: Rung, other: Rung) -> bool:
    names = {*one.phase_peaks, *other.phase_peaks}
    if one is other:
        return True
    no_phase = all(one.phase_peaks.get(name, 0) <= other.phase_peaks.get(name, 0) for name in names)
    return no_phase and one.peak_total_bytes <= other.peak_total_bytes


def _is_ruled_out(combination: Combination, bounds: Iterable[_Bound]) -> bool:
    return any(
        not combination & ~bound.allowed and all(combination & each for each in bound.required) for bound in bounds
    )


def _expected(space: Space, known: Known, combinations: Iterable[Combination]) -> dict[Combination, int]:
    """What each is expected to allocate: the sum of what its measures save alone, put right by parts of it."""
    parts = [(each, seen.allocated_bytes) for each, seen in known.items() if seen.kind in (FITS, TOO_BIG) and each]
    expected = {}
    for combination in combinations:
        size = space.expected_bytes[combination]
        for part, allocated in parts:
            if part & combination == part:
                still = space.savings_bytes[combination] - space.savings_bytes[part]
                size = min(max(size, allocated - still), allocated)
        expected[combination] = size
    return expected


def _unconfirmed(space: Space, cheapest: Combination | None, cheaper: Sequence[Combination]) -> list[Combination]:
    """What was ruled out, to be rehearsed all the same: first the cheapest with a measure less, or a weaker one."""
    by_size = sorted(cheaper, key=lambda each: (space.expected_bytes[each], space.keys[each]))
    if cheapest is None:
        return by_size
    nearest = {
        without | other
        for n, rung in enumerate(space.rungs)
        if cheapest >> n & 1
        for without in (cheapest & ~(1 << n),)
        for other in (0, *(1 << m for m, two in enumerate(space.rungs) if _is_next_weaker(two, rung)))
    }
    return sorted(by_size, key=lambda each: each not in nearest)


def _is_next_weaker(one: Rung, other: Rung) -> bool:
    return one.measure == other.measure and one.place == other.place - 1

"""Which combinations are rehearsed: never a cheaper one missed, against brute force over simulated measures."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from dryfit.search.combinations import (
    Combination,
    Known,
    Order,
    Rung,
    Seen,
    Space,
    next_combinations,
    searched,
    space_of,
)
from dryfit.search.trial import FAILED, FITS, TOO_BIG

PHASES = ("forward", "backward", "optimizer step")
AS_IT_IS = Rung(word="", measure="", place=0, phase_peaks=dict.fromkeys(PHASES, 100), peak_total_bytes=110)

Peaks = Callable[[Space, Combination], dict[str, int]]


def rung(word: str, *peaks: int, place: int = 0) -> Rung:
    by_phase = dict(zip(PHASES, peaks, strict=True))
    total = max(peaks) + 10
    return Rung(word=word, measure=word.partition(":")[0], place=place, phase_peaks=by_phase, peak_total_bytes=total)


def any_two(_: Rung, __: Rung) -> bool:
    return True


def prices(costs: dict[str, int]) -> Callable[[Sequence[Rung]], Order]:
    return lambda members: (sum(costs.get(member.word, 0) for member in members), len(members))


def sums(space: Space, combination: Combination) -> dict[str, int]:
    """Each phase's peak where measures save together what they save alone."""
    return {
        phase: had - sum(had - member.phase_peaks[phase] for member in space.members(combination))
        for phase, had in space.as_it_is.phase_peaks.items()
    }


def search(
    space: Space,
    peaks: Peaks,
    room: int,
    *,
    width: int = 2,
    most: int = 10**6,
    failing: frozenset[Combination] = frozenset(),
) -> tuple[dict[Combination, Seen], list[Combination]]:
    """Search a space whose peaks are a formula, as the plan does: the program as it is and the singles come first."""
    order_of_rehearsals: list[Combination] = []

    def rehearse(combination: Combination) -> Seen:
        size = max(peaks(space, combination).values())
        kind = FAILED if combination in failing else FITS if size <= room else TOO_BIG
        return Seen(kind=kind, allocated_bytes=size)

    known: dict[Combination, Seen] = {0: rehearse(0)} | {1 << n: rehearse(1 << n) for n in range(len(space.rungs))}
    while wanted := next_combinations(space, known, room_bytes=room, width=width)[: most - len(order_of_rehearsals)]:
        assert len(wanted) <= width
        assert not set(wanted) & set(known)
        order_of_rehearsals += wanted
        known |= {each: rehearse(each) for each in wanted}
    return known, order_of_rehearsals


def brute_force(space: Space, peaks: Peaks, room: int) -> Combination | None:
    fitting = [each for each in space.by_price if max(peaks(space, each).values()) <= room]
    return min(fitting, key=space.keys.__getitem__, default=None)


def test_a_space_has_each_combination_once_without_those_that_do_not_go_together() -> None:
    rungs = [rung("a", 90, 90, 90), rung("b:2", 80, 80, 80), rung("b:4", 60, 60, 60, place=1), rung("c", 90, 90, 90)]
    space = space_of(
        rungs, AS_IT_IS, together=lambda one, two: {one.measure, two.measure} != {"a", "c"}, order=prices({})
    )
    assert {space.words(each) for each in space.by_price} == {
        ("a",), ("b:2",), ("b:4",), ("c",), ("a", "b:2"), ("a", "b:4"), ("b:2", "c"), ("b:4", "c"),
    }  # fmt: skip
    assert (space.largest, space.is_whole) == (2, True)


def test_combinations_come_by_price_then_by_fewer_measures_then_by_weaker_options() -> None:
    rungs = [rung("a", 90, 90, 90), rung("b:2", 80, 80, 80), rung("b:4", 60, 60, 60, place=1)]
    space = space_of(rungs, AS_IT_IS, together=any_two, order=prices({"a": 5}))
    assert [space.words(each) for each in space.by_price] == [
        ("b:2",), ("b:4",), ("a",), ("a", "b:2"), ("a", "b:4"),
    ]  # fmt: skip


def test_of_too_many_combinations_those_of_fewer_measures_are_searched() -> None:
    rungs = [rung(f"m{n}", 99, 99, 99) for n in range(10)]
    space = space_of(rungs, AS_IT_IS, together=any_two, order=prices({}), most=200)
    assert (space.largest, space.is_whole, len(space.by_price)) == (3, False, 10 + 45 + 120)
    assert space_of(rungs, AS_IT_IS, together=any_two, order=prices({}), most=1023).is_whole


def test_an_expected_hit_and_the_strongest_are_tried_first_and_all_cheaper_ones_after() -> None:
    rungs = [
        rung("free", 90, 90, 100),
        rung("cheap", 80, 80, 100),
        rung("dear", 30, 30, 99),
        rung("step", 99, 99, 40),
    ]
    space = space_of(rungs, AS_IT_IS, together=any_two, order=prices({"cheap": 1, "dear": 30}))
    known, tried = search(space, sums, 70)
    assert space.words(tried[0]) == ("free", "cheap", "step")
    assert sums(space, tried[1]) == {"forward": 29, "backward": 29, "optimizer step": 39}  # no other takes less
    found = searched(space, known)
    assert space.words(found.cheapest or 0) == ("free", "cheap", "step")
    assert (found.ruled_out, found.left) == (0, 0)  # with time enough, what is ruled out is rehearsed too
    assert found.combinations == 11
    assert found.cheaper == found.rehearsed - 2 == 3


def test_what_one_too_big_combination_rules_out_is_counted_where_time_is_short() -> None:
    rungs = [rung(f"m{n}", 99, 99, 99) for n in range(4)]
    space = space_of(rungs, AS_IT_IS, together=any_two, order=prices({}))
    known, tried = search(space, sums, 50, most=1)
    assert tried == [0b1111]
    found = searched(space, known)
    assert (found.cheapest, found.rehearsed, found.cheaper, found.ruled_out, found.left) == (None, 1, 11, 10, 0)


def test_a_measure_that_raises_a_phase_alone_rules_out_nothing_without_it() -> None:
    rungs = [rung("a", 50, 100, 100), rung("b", 100, 40, 120), rung("c", 100, 100, 60)]
    space = space_of(rungs, AS_IT_IS, together=any_two, order=prices({"c": 9}))
    known: Known = {0: Seen(kind=TOO_BIG, allocated_bytes=100), 0b111: Seen(kind=TOO_BIG, allocated_bytes=90)}
    assert searched(space, known).ruled_out == 2  # with b and without: "a, b" and "b, c", not "a, c"
    weaker = [rung("b:2", 100, 60, 100), rung("b:4", 110, 40, 100, place=1), rung("a", 50, 100, 100)]
    space = space_of(weaker, AS_IT_IS, together=any_two, order=prices({}))
    assert searched(space, {0b110: Seen(kind=TOO_BIG, allocated_bytes=90)}).ruled_out == 0


def test_a_combination_without_an_answer_rules_out_nothing_and_is_counted() -> None:
    rungs = [rung(f"m{n}", 80, 80, 80) for n in range(3)]
    space = space_of(rungs, AS_IT_IS, together=any_two, order=prices({}))
    known, _ = search(space, sums, 50, failing=[0b111])
    found = searched(space, known)
    assert (found.cheapest, found.rehearsed, found.unanswered, found.ruled_out, found.left) == (None, 4, 1, 0, 0)


def test_a_counted_price_stands_in_place_of_the_sum() -> None:
    """Two fit; the one with the smaller sum turns out to be dearer, and what lies between is looked at too."""
    rungs = [rung("a", 40, 40, 40), rung("b", 90, 90, 90), rung("c", 45, 45, 45)]
    space = space_of(rungs, AS_IT_IS, together=any_two, order=prices({"a": 10, "b": 1, "c": 12}))
    too_big = {0b010: Seen(kind=TOO_BIG, allocated_bytes=90)}
    cheapest = too_big | {0b001: Seen(kind=FITS, allocated_bytes=40, order=(14, 1))}
    assert searched(space, cheapest).cheapest == 0b001
    assert next_combinations(space, cheapest, room_bytes=50, width=4) == [0b011, 0b100, 0b110]
    both = cheapest | {0b100: Seen(kind=FITS, allocated_bytes=45, order=(12, 1))}
    assert searched(space, both).cheapest == 0b100


def test_the_cheapest_is_confirmed_by_rehearsing_it_with_each_measure_gone_or_weaker() -> None:
    rungs = [
        rung("a:2", 80, 100, 100), rung("a:4", 60, 100, 100, place=1), rung("a:8", 40, 100, 100, place=2),
        rung("b", 100, 50, 100), rung("c", 100, 100, 50),
    ]  # fmt: skip
    space = space_of(rungs, AS_IT_IS, together=any_two, order=prices({}))
    known, tried = search(space, sums, 70)
    assert space.words(searched(space, known).cheapest or 0) == ("a:4", "b", "c")
    assert {("a:2", "b", "c"), ("a:4", "b"), ("a:4", "c"), ("b", "c")} <= {space.words(each) for each in tried}


# -- against brute force -----------------------------------------------------------------------------------------------


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    """Up to six measures with ladders of up to three, groups, and prices that are free, equal or not."""
    rungs, costs, groups = [], {}, {}
    for n in range(draw(st.integers(1, 6))):
        groups[f"m{n}"] = draw(st.integers(0, 7))
        left = [100, 100, 100]
        for place in range(draw(st.sampled_from((1, 1, 1, 2, 3)))):
            left = [draw(st.integers(max(1, had - 40), had)) for had in left]
            word = f"m{n}:{place}"
            rungs.append(rung(word, *left, place=place))
            costs[word] = draw(st.sampled_from((0, 0, 1, 5, 33)))
    return space_of(
        rungs, AS_IT_IS, together=lambda one, two: groups[one.measure] != groups[two.measure], order=prices(costs)
    )


def products(space: Space, combination: Combination) -> dict[str, int]:
    """Each phase's peak where a measure takes the same part of it, whatever is on beside."""
    peaks = {}
    for phase, had in space.as_it_is.phase_peaks.items():
        peaks[phase] = had * 10_000
        for member in space.members(combination):
            peaks[phase] = peaks[phase] * member.phase_peaks[phase] // had
        peaks[phase] //= 10_000
    return peaks


@given(spaces(), st.integers(5, 95), st.sampled_from((sums, products)), st.integers(1, 4))
@settings(max_examples=150, deadline=None)
def test_the_cheapest_that_fits_is_found_where_measures_only_save(
    space: Space, room: int, peaks: Peaks, width: int
) -> None:
    known, _ = search(space, peaks, room, width=width)
    assert searched(space, known).cheapest == brute_force(space, peaks, room)


@given(spaces(), st.integers(5, 95), st.integers(1, 4), st.integers(0, 2**32), st.integers(0, 20))
@settings(max_examples=150, deadline=None)
def test_the_cheapest_that_fits_is_found_where_nothing_is_as_expected(
    space: Space, room: int, width: int, seed: int, most: int
) -> None:
    """Peaks of combinations by lot: given time, nothing cheaper is missed; cut short, what is said is still true."""

    def by_lot(space: Space, combination: Combination) -> dict[str, int]:
        if combination & (combination - 1) == 0:
            return sums(space, combination)
        return {"forward": (combination * 2654435761 + seed) % 97}

    known, _ = search(space, by_lot, room, width=width)
    found = searched(space, known)
    assert found.cheapest == brute_force(space, by_lot, room)
    assert (found.ruled_out, found.left) == (0, 0)

    known, tried = search(space, by_lot, room, width=width, most=most)
    cut = searched(space, known)
    assert cut.rehearsed == len(tried) <= most
    assert cut.cheapest is None or max(by_lot(space, cut.cheapest).values()) <= room
    several = [each for each in space.by_price if each & (each - 1)]
    limit = None if cut.cheapest is None else space.keys[cut.cheapest]
    cheaper = [each for each in several if limit is None or space.keys[each] < limit]
    assert cut.cheaper == len(cheaper)
    assert sum(each not in known for each in cheaper) == cut.ruled_out + cut.left
    assert all(known[each].kind == TOO_BIG for each in cheaper if each in known)


@given(spaces(), st.integers(5, 95))
@settings(max_examples=100, deadline=None)
def test_what_is_ruled_out_does_not_fit_where_measures_only_save(space: Space, room: int) -> None:
    """Stopped as soon as nothing is left but to confirm, the answer is already that of brute force."""
    known: dict[Combination, Seen] = {}

    def rehearse(combination: Combination) -> Seen:
        size = max(products(space, combination).values())
        return Seen(kind=FITS if size <= room else TOO_BIG, allocated_bytes=size)

    known |= {each: rehearse(each) for each in (0, *(1 << n for n in range(len(space.rungs))))}
    while searched(space, known).left:
        known |= {each: rehearse(each) for each in next_combinations(space, known, room_bytes=room, width=2)}
    assert searched(space, known).cheapest == brute_force(space, products, room)


def test_with_many_free_measures_few_rehearsals_come_to_the_answer() -> None:
    """Nine measures make 511 combinations; an answer that needs several is found without going through them."""
    free = [rung(f"free{n}", 100 - n % 3, 100, 100 - n) for n in range(5)]
    dear = [rung(f"dear{n}", 70 - 5 * n, 75 - 5 * n, 100) for n in range(4)]
    space = space_of([*free, *dear], AS_IT_IS, together=any_two, order=prices({f"dear{n}": 10 + n for n in range(4)}))
    known, tried = search(space, sums, 80, most=25)
    found = searched(space, known)
    assert found.left == 0
    assert found.cheapest == brute_force(space, sums, 80)
    assert len(tried) <= 25
    assert found.ruled_out > 0


def test_a_search_does_not_depend_on_how_many_are_rehearsed_at_a_time() -> None:
    rungs = [rung(f"m{n}", 95 - 3 * n, 90 - n, 99 - 7 * n) for n in range(5)]
    space = space_of(rungs, AS_IT_IS, together=any_two, order=prices({f"m{n}": n * n for n in range(5)}))
    answers = {searched(space, search(space, sums, 75, width=width)[0]).cheapest for width in (1, 2, 3, 8)}
    assert len(answers) == 1


def test_words_are_those_of_the_command_line_and_rungs_are_values() -> None:
    one = rung("a:2", 1, 2, 3)
    assert dataclasses.replace(one) == one
    space = space_of([one], AS_IT_IS, together=any_two, order=prices({}))
    assert space.words(1) == ("a:2",)
    assert list(itertools.chain(space.members(0))) == []

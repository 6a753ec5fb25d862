"""The search of a plan: the program as it is, each measure alone, then combinations until the cheapest is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from dryfit.measures.catalogue import go_together, measures_of
from dryfit.measures.facts import Facts
from dryfit.measures.price import Price
from dryfit.search.choosing import (
    Ladder,
    Wishes,
    beyond,
    choose,
    most_saved_bytes,
    needs_more_cards,
    not_on_more_cards,
    why_rejected,
)
from dryfit.search.combinations import (
    Combination,
    Order,
    Rung,
    Searched,
    Seen,
    Space,
    next_combinations,
    searched,
    space_of,
)
from dryfit.search.planned import CardFor, NotTaken, are_alike, is_more_than_needed
from dryfit.search.question import (
    Measures,
    Outcome,
    Question,
    changes_of,
    facts_of,
    outcome_of,
    outcomes_of,
    prices_of,
    smallest_card,
)
from dryfit.search.rehearsing import all_at_once
from dryfit.search.trial import FITS, TOO_BIG

# Of what does not fit, so many combinations are shown, with their price counted.
_MOST_NEAREST = 3
# A search that only what surely fits ends may go on for so many rehearsals more, at least.
_LEAST_FOR_SURE = 8
# Those ruled out are rehearsed all the same while this part of what may be is not used up.
_SPARE_PART = 3
# A stronger option is tried while the one before saves this share of the peak, in any phase.
_LEAST_SHARE = 0.01


@dataclass(slots=True, kw_only=True)
class Findings:
    """What a plan has found out so far. `outcomes` and `prices` are by measures, () for the program as it is."""

    facts: Facts | None = None
    outcomes: dict[Measures, Outcome] = field(default_factory=dict)
    prices: dict[Measures, Price] = field(default_factory=dict)
    rejected: list[NotTaken] = field(default_factory=list)
    not_tried: list[NotTaken] = field(default_factory=list)
    cheapest: Measures | None = None
    surely: Measures | None = None
    nearest: Measures | None = None
    cards: tuple[CardFor, ...] = ()
    space: Space | None = None
    searched: Searched | None = None
    searched_surely: Searched | None = None
    notes: list[str] = field(default_factory=list)


def find_out(question: Question, wishes: Wishes, most: int) -> Findings:
    """Rehearse what a plan needs to know, and what of it is the answer.

    Raises:
        UsageError: a measure that was asked for changes what is to be kept.
        Stopped: the search was stopped.
    """
    found = Findings()
    base = _look_at_program(question, found)
    if base.kind not in (FITS, TOO_BIG):
        return found
    found.notes += _alone_in_world(question, found.facts)
    question = replace(question, is_even=are_alike(base.free.ranks))
    ladders, found.not_tried = choose(found.facts, wishes)
    on_more_cards = [each for each in ladders if needs_more_cards(each, wishes)]
    rungs = _try_singles(question, [each for each in ladders if each not in on_more_cards], found)
    _search_for_cheapest(question, rungs, found, most)
    if found.cheapest is None and on_more_cards:
        rungs += _try_singles(question, on_more_cards, found)
        _search_for_cheapest(question, rungs, found, most)
    else:
        found.not_tried += map(not_on_more_cards, on_more_cards)
    if found.cheapest is not None:
        found.surely = _surely(question, found, most)
    _look_at_what_is_shown(question, found)
    return found


def _search_for_cheapest(question: Question, rungs: Sequence[Rung], found: Findings, most: int) -> None:
    """See which combinations there are, and look for the cheapest that fits where the program alone does not."""
    base = found.outcomes[()]
    found.space = space = space_of(
        rungs,
        _rung("", 0, base),
        together=lambda one, two: go_together(*(measures_of([each.word])[0][0] for each in (one, two))),
        order=partial(_expected_order, found),
    )
    if base.kind == FITS:
        found.cheapest = ()
        return
    found.searched = _search(question, space, found, found.outcomes, most)
    if found.searched.cheapest is not None:
        found.cheapest = space.words(found.searched.cheapest)


def _alone_in_world(question: Question, facts: Facts | None) -> list[str]:
    """What is to be said of a program that has nothing to do with the other ranks."""
    if question.world is None or question.world.size == 1 or facts is None or facts.world > 1:
        return []
    return [
        f"The program made no process group, so that it is not one of {question.world.size} ranks: every figure is "
        "that of a program on one card. Without --world, measures that spread it over several cards are tried."
    ]


def _look_at_program(question: Question, found: Findings) -> Outcome:
    """Rehearse the program as it is, for its figures and for what it is like."""
    outcome: list[Outcome] = []
    facts: list[Facts | None] = []

    def see_figures() -> None:
        outcome.append(outcome_of(question, ()))

    def see_facts() -> None:
        seen, trial = facts_of(question, ())
        facts.append(seen)
        if seen is None:
            found.notes.append(
                f"What the program is like could not be seen, so that no FLOPs are counted: {trial.sentence}"
            )

    all_at_once([see_figures, see_facts], question.runner)
    found.outcomes[()], found.facts = outcome[0], facts[0]
    if found.facts is not None:
        found.prices[()] = _price_as_it_is(found.facts)
    return outcome[0]


def _try_singles(question: Question, ladders: Sequence[Ladder], found: Findings) -> list[Rung]:
    """Rehearse each measure alone, with each of its options; those that save something, and what they cost."""
    base = found.outcomes[()]
    climbed = all_at_once([partial(_climb, question, ladder, base) for ladder in ladders], question.runner)
    rungs = []
    for ladder, (kept, rejected, after) in zip(ladders, climbed, strict=True):
        found.outcomes |= {each.measures: each for each in kept}
        found.rejected += rejected
        found.not_tried += after
        rungs += [_rung(ladder.measure.name, place, each) for place, each in enumerate(kept)]
    _count(question, found, [(rung.word,) for rung in rungs])
    return rungs


def _climb(question: Question, ladder: Ladder, base: Outcome) -> tuple[list[Outcome], list[NotTaken], list[NotTaken]]:
    """The options of a measure that save something beside the one before; what ends them, and what comes after."""
    kept: list[Outcome] = []
    for place, word in enumerate(ladder.words, start=1):
        outcome, before = outcome_of(question, (word,)), kept[-1] if kept else base
        why = why_rejected(ladder.measure, outcome, before)
        if why is not None:
            return kept, [why], beyond(ladder, place, f"{word} is of no use")
        kept.append(outcome)
        if most_saved_bytes(outcome, before) < base.free.peak_allocated_bytes * _LEAST_SHARE:
            return kept, [], beyond(ladder, place, f"{word} saves less than 1 % more than what comes before it")
    return kept, [], []


def _rung(measure: str, place: int, outcome: Outcome) -> Rung:
    return Rung(
        word=outcome.measures[0] if outcome.measures else "",
        measure=measure,
        place=place,
        phase_peaks=outcome.free.phase_peaks,
        peak_total_bytes=outcome.free.peak_total_bytes,
    )


def _search(
    question: Question, space: Space, found: Findings, outcomes: dict[Measures, Outcome], most: int
) -> Searched:
    """Rehearse combinations until the cheapest that fits is known, or as many as there may be."""
    room_bytes = question.room_bytes - question.card.outside_bytes
    done = 0
    while True:
        known = _known(space, found, outcomes)
        wanted = next_combinations(
            space, known, room_bytes=room_bytes, width=question.runner.jobs, spare=most // _SPARE_PART - done
        )[: most - done]
        if not wanted:
            return searched(space, known)
        done += len(wanted)
        new = outcomes_of(question, [space.words(each) for each in wanted])
        outcomes |= {outcome.measures: outcome for outcome in new}
        _count(question, found, [outcome.measures for outcome in new if outcome.kind == FITS])


def _known(space: Space, found: Findings, outcomes: Mapping[Measures, Outcome]) -> dict[Combination, Seen]:
    places = {rung.word: 1 << n for n, rung in enumerate(space.rungs)}
    known = {}
    for measures, outcome in outcomes.items():
        price = found.prices.get(measures)
        order = price.order if price is not None else None
        known[sum(places[word] for word in measures)] = Seen(
            kind=outcome.kind, allocated_bytes=outcome.free.peak_allocated_bytes, order=order
        )
    return known


def _surely(question: Question, found: Findings, most: int) -> Measures | None:
    """The cheapest that fits with all of the margin taken outside the allocator."""
    space = found.space
    assert found.cheapest is not None
    assert space is not None
    if not found.outcomes[found.cheapest].is_close:
        return found.cheapest
    close = [each for each in found.outcomes.values() if each.kind == FITS and each.is_close]
    margin_bytes = max(each.free.margin_bytes for each in close)
    strict = replace(question, reserve_bytes=max(question.reserve_bytes, margin_bytes))
    settled = all_at_once([partial(outcome_of, strict, each.measures, each.free) for each in close], question.runner)
    outcomes = found.outcomes | {each.measures: each for each in settled}
    surely: Measures | None = found.cheapest
    if outcomes[found.cheapest].kind != FITS:
        done = found.searched.rehearsed if found.searched is not None else 0
        seen = _search(strict, space, found, outcomes, max(most - done, _LEAST_FOR_SURE))
        surely = space.words(seen.cheapest) if seen.cheapest is not None else None
        found.searched_surely = seen
    _settle(question, found, outcomes)
    return surely


def _settle(question: Question, found: Findings, outcomes: Mapping[Measures, Outcome]) -> None:
    """Take over what rehearsals with all of the margin taken have said."""
    new = [each for measures, each in outcomes.items() if measures not in found.outcomes]
    judged = all_at_once([partial(outcome_of, question, each.measures, each.free) for each in new], question.runner)
    found.outcomes |= {each.measures: each for each in judged}
    for measures, outcome in outcomes.items():
        if outcome.kind == FITS:
            found.outcomes[measures] = replace(found.outcomes[measures], is_close=False)


def _look_at_what_is_shown(question: Question, found: Findings) -> None:
    """Count the price of what fits, and of what comes nearest, and see which cards would do."""
    base = found.outcomes[()]
    fitting = [each for each in found.outcomes.values() if each.kind == FITS]
    _count(question, found, [each.measures for each in fitting if not is_more_than_needed(each, fitting)])
    found.cheapest = _cheaper_as_counted(found, found.cheapest, fitting)
    found.surely = _cheaper_as_counted(found, found.surely, [each for each in fitting if not each.is_close])
    too_big = [each for each in found.outcomes.values() if each.kind == TOO_BIG]
    too_big.sort(key=lambda each: each.free.peak_total_bytes)
    several = [each.measures for each in too_big if len(each.measures) > 1]
    _count(question, found, several[:_MOST_NEAREST])
    if base.kind == FITS:
        return
    wanted = [base]
    if found.cheapest is None:
        found.nearest = too_big[0].measures
        wanted = list({each.measures: each for each in (base, too_big[0])}.values())
    found.cards = tuple(all_at_once([partial(smallest_card, question, each) for each in wanted], question.runner))


def _cheaper_as_counted(found: Findings, cheapest: Measures | None, fitting: Sequence[Outcome]) -> Measures | None:
    """The cheapest, or what was found on the way to something else and costs less, now that that was counted."""
    if cheapest is None or cheapest not in found.prices:
        return cheapest
    counted = [each.measures for each in fitting if each.measures in found.prices]
    return min([cheapest, *counted], key=lambda each: found.prices[each].order)


def _count(question: Question, found: Findings, sets: Sequence[Measures]) -> None:
    missing = [each for each in sets if each not in found.prices]
    if found.facts is not None:
        found.prices |= dict(zip(missing, prices_of(question, found.facts, missing), strict=True))


def _expected_order(found: Findings, members: Sequence[Rung]) -> Order:
    """What a combination is expected to cost: the sum of what its measures cost alone."""
    words = tuple(member.word for member in members)
    if found.facts is None:
        return (0, 0, 0, 0, len(words))
    base = _price_as_it_is(found.facts)
    alone = [found.prices[(word,)] for word in words]
    expected = replace(
        base,
        flops=base.flops + sum(each.flops - base.flops for each in alone),
        host_bytes=base.host_bytes + sum(each.extra_host_bytes for each in alone),
        sent_bytes=base.sent_bytes + sum(each.extra_sent_bytes for each in alone),
        changes=changes_of(words, found.facts),
        cards=max((each.cards for each in alone), default=1),
        measures=len(words),
    )
    return expected.order


def _price_as_it_is(facts: Facts) -> Price:
    return Price(
        flops=facts.flops,
        base_flops=facts.flops,
        host_bytes=facts.host_bytes,
        base_host_bytes=facts.host_bytes,
        sent_bytes=facts.sent_bytes,
        base_sent_bytes=facts.sent_bytes,
        is_counted=bool(facts.flops),
    )

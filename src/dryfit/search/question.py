"""What a plan asks of one set of measures: does the program fit on the card with it, and what does each step cost?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from dryfit.cards import Card, all_cards, cards_that_fit
from dryfit.measures.catalogue import measures_of
from dryfit.measures.facts import Facts
from dryfit.measures.measure import CHANGES
from dryfit.measures.micro_batch import micro_batches_of
from dryfit.measures.price import Price
from dryfit.rehearse.callables import as_called
from dryfit.rehearse.world import World
from dryfit.search.planned import CardFor, Tried
from dryfit.search.rehearsing import Runner, Wanted, all_at_once
from dryfit.search.trial import FITS, TOO_BIG, Trial
from dryfit.search.words import Sweep

_MOST_CARDS_TRIED = 3
MICRO_BATCH = "micro-batch"
CARDS = "cards"  # the group of measures whose option is a number of cards

Measures = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One program on one card, `reserve_bytes` of which stay free; `sweep` where its words hold its batch.

    With a `world` the program plays its ranks; those of the program as it is differ unless it `is_even`.
    """

    runner: Runner
    words: tuple[str, ...]
    sweep: Sweep | None
    gpu: str
    card: Card
    reserve_bytes: int
    world: World | None = None
    is_even: bool = False

    @property
    def room_bytes(self) -> int:
        """What a peak that nvidia-smi would show may come to."""
        return self.card.total_bytes - self.reserve_bytes

    def command(self, measures: Measures) -> tuple[str, ...]:
        """The program's words; where they hold its batch, that of a micro-batch if there are several."""
        if self.sweep is None:
            return self.words
        counts = [micro_batches_of(option) for measure, option in measures_of(measures) if measure.name == MICRO_BATCH]
        return tuple(self.sweep.command({}, self.sweep.values[0] // (counts[0] if counts else 1)))

    def ranks(self, measures: Measures) -> str:
        """The ranks to rehearse: the first, and the last where it may hold another share than the first."""
        if self.world is None or self.world.size == 1:
            return "0"
        is_even = self.is_even and not any(measure.is_uneven for measure, _ in measures_of(measures))
        return "0" if is_even else "0,last"

    def wanted(self, measures: Measures) -> Wanted:
        where = f"{self.gpu}{f' in a world of {self.world.size}' if self.world is not None else ''}"
        what = f"{' + '.join(measures) or 'as it is'} on {where}"
        return Wanted(
            what=what,
            words=self.command(measures),
            gpu=self.gpu,
            card=self.card,
            reserve_bytes=self.reserve_bytes,
            measures=measures,
            world=self.world,
            ranks=self.ranks(measures),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A set of measures, rehearsed without a limit, and on the card where that is another run.

    One without a limit that takes no more than the card has is the same on the card. One whose tensors alone take more
    cannot fit. In between the allocator gives back what it has cached, and only a rehearsal can tell.
    """

    measures: Measures
    free: Trial
    on_card: Trial | None = None
    kind: str
    is_close: bool = False

    @property
    def shown(self) -> Trial:
        """The rehearsal whose figures are shown: on the card where it fits, without a limit where it does not."""
        return self.on_card if self.on_card is not None and self.kind == FITS else self.free


def outcomes_of(question: Question, sets: Sequence[Measures]) -> list[Outcome]:
    """Rehearse sets of measures beside each other.

    Raises:
        Stopped: the search was stopped meanwhile.
    """
    return all_at_once([partial(outcome_of, question, measures) for measures in sets], question.runner)


def outcome_of(question: Question, measures: Measures, free: Trial | None = None) -> Outcome:
    """Rehearse one set of measures, and see whether it fits on the card; `free` is it without a limit, if known."""
    wanted, card = question.wanted(measures), question.card
    free = free or question.runner.begin(replace(wanted.without_limit, reserve_bytes=0)).result()
    if free.kind != FITS:
        return Outcome(measures=measures, free=free, kind=free.kind)
    if free.peak_total_bytes <= question.room_bytes:
        spare_bytes = card.total_bytes - free.peak_total_bytes
        is_close = spare_bytes < free.margin_bytes and question.reserve_bytes < free.margin_bytes
        return Outcome(measures=measures, free=free, kind=FITS, is_close=is_close)
    if free.peak_allocated_bytes + card.outside_bytes > question.room_bytes:
        lacking_bytes = free.peak_allocated_bytes + card.outside_bytes - question.room_bytes
        is_close = lacking_bytes <= free.margin_below_bytes
        return Outcome(measures=measures, free=free, kind=TOO_BIG, is_close=is_close)
    on_card = question.runner.begin(wanted).result()
    return Outcome(measures=measures, free=free, on_card=on_card, kind=on_card.kind, is_close=on_card.is_close)


def facts_of(question: Question, measures: Measures) -> tuple[Facts | None, Trial]:
    """What a program is like with these measures; None where that could not be seen."""
    wanted = question.wanted(measures)
    wanted = replace(wanted.without_limit, what=f"the price of {wanted.what}", reserve_bytes=0, facts=True, ranks="0")
    trial = question.runner.begin(wanted).result()
    return (trial.facts if trial.kind == FITS else None), trial


def prices_of(question: Question, base: Facts, sets: Sequence[Measures]) -> list[Price]:
    """Count what sets of measures cost beside the program as it is, `base`.

    Raises:
        Stopped: the search was stopped meanwhile.
    """
    return all_at_once([partial(price_of, question, base, measures) for measures in sets], question.runner)


def price_of(question: Question, base: Facts, measures: Measures) -> Price:
    """Count what one set of measures costs."""
    facts, _ = facts_of(question, measures) if measures else (base, None)
    return Price(
        flops=facts.flops if facts is not None else base.flops,
        base_flops=base.flops,
        host_bytes=facts.host_bytes if facts is not None else base.host_bytes,
        base_host_bytes=base.host_bytes,
        sent_bytes=facts.sent_bytes if facts is not None else base.sent_bytes,
        base_sent_bytes=base.sent_bytes,
        changes=changes_of(measures, base),
        cards=cards_of(measures),
        measures=len(measures),
        is_counted=facts is not None and bool(facts.flops),
    )


def changes_of(measures: Measures, facts: Facts) -> str:
    """The most that any of them changes in what is computed."""
    changes = [measure.changes(facts) for measure, _ in measures_of(measures)]
    return max(changes, key=CHANGES.index, default=CHANGES[0])


def cards_of(measures: Measures) -> int:
    """How many cards share the work: the option of a measure that spreads it."""
    return max((int(option) for measure, option in measures_of(measures) if measure.group == CARDS), default=1)


def smallest_card(question: Question, outcome: Outcome) -> CardFor:
    """The smallest card of the catalogue on which a set of measures was rehearsed and fits."""
    used_bytes = outcome.free.peak_total_bytes - question.card.outside_bytes
    candidates = cards_that_fit(used_bytes + question.reserve_bytes, all_cards()).fits[:_MOST_CARDS_TRIED]
    others = (replace(question, gpu=card.key, card=card) for card in candidates)
    fitting = (
        other.gpu for other in others if question.runner.begin(other.wanted(outcome.measures)).result().kind == FITS
    )
    return CardFor(measures=outcome.measures, peak_total_bytes=outcome.free.peak_total_bytes, card=next(fitting, None))


def tried_of(question: Question, outcome: Outcome, price: Price | None) -> Tried:
    """What a plan keeps of a set of measures."""
    shown, last = outcome.shown, outcome.on_card or outcome.free
    too_big = outcome.kind == TOO_BIG
    return Tried(
        measures=outcome.measures,
        kind=outcome.kind,
        command=tuple(as_called(question.command(outcome.measures))),
        peak_allocated_bytes=shown.peak_allocated_bytes,
        peak_reserved_bytes=shown.peak_reserved_bytes,
        peak_total_bytes=shown.peak_total_bytes,
        lacking_bytes=max(0, shown.peak_total_bytes - question.room_bytes) if too_big else 0,
        phase=shown.phase,
        phase_peaks=dict(shown.phase_peaks),
        is_close=outcome.is_close,
        margin_bytes=shown.margin_below_bytes if too_big else shown.margin_bytes,
        price=price,
        sentence=last.sentence,
        sizes_unknown=shown.sizes_unknown,
        growth_bytes=shown.growth_bytes,
        rank=shown.rank,
        ranks=shown.ranks,
        communication=dict(shown.communication),
    )

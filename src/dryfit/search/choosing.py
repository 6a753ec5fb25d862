"""Which measures a plan tries, which it leaves out and why, and which of those rehearsed are of no use."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass

from dryfit.errors import UsageError
from dryfit.measures.blocks import blocks_in_code
from dryfit.measures.catalogue import all_measures
from dryfit.measures.facts import Facts
from dryfit.measures.measure import METHOD, NOTHING, PRECISION, Measure
from dryfit.measures.micro_batch import micro_batches_of, placed_options, why_not_placed
from dryfit.rehearse.events import NOT_SWITCHED_ON
from dryfit.search.planned import NotTaken, ToWrite
from dryfit.search.question import CARDS, MICRO_BATCH, Measures, Outcome
from dryfit.search.trial import FITS

# What may change, by what is to be kept.
KEEP = {"accuracy": (NOTHING,), "method": (NOTHING, PRECISION), "nothing": (NOTHING, PRECISION, METHOD)}
_CHANGES_IN_WORDS = {
    PRECISION: "it computes or keeps numbers with fewer bits",
    METHOD: "it trains something else, or by another rule",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a person asked of a plan: what to keep, measures to restrict it to or to leave out, and the batch."""

    keep: str
    only: tuple[str, ...]
    without: tuple[str, ...]
    batch: int | None
    also: tuple[str, ...] = ()

    def check(self) -> None:
        """See that they make sense.

        Raises:
            UsageError: there is no such measure, or they contradict each other.
        """
        if self.keep not in KEEP:
            raise UsageError(f"--keep {self.keep} is none of {', '.join(KEEP)}.")
        known = [measure.name for measure in all_measures()]
        for name in (*self.only, *self.also, *self.without):
            if ":" in name:
                raise UsageError(
                    f"{name} names an option; give the measure alone, {name.partition(':')[0]}: which of its options "
                    "is needed is what is searched."
                )
            if name not in known:
                raise UsageError(f"There is no measure {name!r}; there are {', '.join(known)}.")
        for option, names in (("--only", self.only), ("--also", self.also)):
            both = [name for name in names if name in self.without]
            if both:
                raise UsageError(
                    f"{both[0]} is named in {option} and in --without; it can be tried or left out, not both."
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """A measure to be tried, and its words with each option, the cheapest first."""

    measure: Measure
    words: tuple[str, ...]


def choose(facts: Facts | None, wishes: Wishes) -> tuple[list[Ladder], list[NotTaken]]:
    """The measures to rehearse, and those not tried, with why.

    Raises:
        UsageError: a measure of `only` changes what is to be kept.
    """
    ladders, not_tried = [], []
    for measure in all_measures():
        why, how_to = _why_not(measure, facts, wishes)
        options = _options(measure, facts, wishes) if not why else ()
        if why or not options:
            not_tried.append(
                NotTaken(measure=measure.name, why=why or "it has no option for this program", how_to=how_to)
            )
        else:
            words = tuple(f"{measure.name}:{option}" if option else measure.name for option in options)
            ladders.append(Ladder(measure=measure, words=words))
    return ladders, not_tried


def needs_more_cards(ladder: Ladder, wishes: Wishes) -> bool:
    """Whether a measure is to be tried last, where nothing fits on one card; not if it was asked for by name."""
    return ladder.measure.group == CARDS and ladder.measure.name not in (*wishes.only, *wishes.also)


def not_on_more_cards(ladder: Ladder) -> NotTaken:
    """What is said of it where that was not needed."""
    name = ladder.measure.name
    return NotTaken(measure=name, why="it needs several cards, and one is enough", how_to=f"--also {name}")


def why_rejected(measure: Measure, outcome: Outcome, before: Outcome) -> NotTaken | None:
    """Why a measure that was rehearsed alone is of no use, beside what comes before it; None if it saves something."""
    word, trial = outcome.measures[-1], outcome.free
    if trial.how == NOT_SWITCHED_ON:
        missing = [package for package in measure.needs.split() if not _is_installed(package)]
        how_to = f"pip install {' '.join(missing)}" if missing else ""
        return NotTaken(measure=word, why=trial.sentence, how_to=how_to)
    if trial.kind != FITS:
        return NotTaken(measure=word, why=f"with it {trial.sentence}")
    if not trial.measures.get(measure.name, True):
        return NotTaken(measure=word, why="it found nothing to do in this program")
    if not _saves(outcome, before):
        beside = f"than {before.measures[-1]}" if before.measures else ""
        return NotTaken(measure=word, why=f"it takes no less {beside} in any phase".replace("  ", " "))
    return None


def beyond(ladder: Ladder, place: int, why: str) -> list[NotTaken]:
    """What is said of the options after one that ends the climb."""
    rest = ladder.words[place:]
    if not rest:
        return []
    return [NotTaken(measure=rest[0] if len(rest) == 1 else f"{rest[0]} to {rest[-1]}", why=why)]


def most_saved_bytes(outcome: Outcome, before: Outcome) -> int:
    """What a rehearsal takes less than another in the phase where that is most."""
    one, other = outcome.free.phase_peaks, before.free.phase_peaks
    return max((size - one.get(name, 0) for name, size in other.items()), default=0)


def to_write(measures: Measures, facts: Facts | None) -> tuple[ToWrite, ...]:
    """How a person writes each of them, in the way this program trains."""
    facts = facts or Facts()
    blocks, units = blocks_in_code(facts.blocks), blocks_in_code(facts.units)
    of_transformers = any(model.is_transformers for model in facts.models)
    named = {measure.name: measure for measure in all_measures()}
    found = []
    for word in measures:
        name, _, option = word.partition(":")
        measure, shown = named[name], str(micro_batches_of(option)) if name == MICRO_BATCH else option
        found.append(
            ToWrite(
                measure=word,
                title=measure.title,
                what=measure.what.replace("{option}", shown),
                snippet=measure.snippet(facts.way, shown, blocks, units=units, of_transformers_model=of_transformers),
                needs=measure.needs,
                not_counted=measure.not_counted,
                caution=measure.caution(facts),
            )
        )
    return tuple(found)


def _why_not(measure: Measure, facts: Facts | None, wishes: Wishes) -> tuple[str, str]:
    """Why a measure is not tried, and what to write to have it tried; empty where it is."""
    if wishes.only and measure.name not in (*wishes.only, *wishes.also):
        return "not one of --only", ""
    if measure.name in wishes.without:
        return "left out by --without", ""
    is_placed = measure.name == MICRO_BATCH and wishes.batch is not None
    if facts is not None and (why := (why_not_placed if is_placed else measure.why_not)(facts)):
        return why, ""
    if measure.takes_long and measure.name not in (*wishes.only, *wishes.also):
        return measure.takes_long, f"--also {measure.name}"
    changes = measure.changes(facts or Facts())
    if changes in KEEP[wishes.keep]:
        return "", ""
    enough = next(keep for keep, allowed in KEEP.items() if changes in allowed)
    if measure.name in wishes.only:
        raise UsageError(
            f"--only {measure.name} and --keep {wishes.keep} contradict each other: {_CHANGES_IN_WORDS[changes]}. "
            f"Say --keep {enough} to allow that."
        )
    return _CHANGES_IN_WORDS[changes], f"--keep {enough}"


def _options(measure: Measure, facts: Facts | None, wishes: Wishes) -> Sequence[str]:
    if measure.name == MICRO_BATCH and wishes.batch is not None:
        return placed_options(wishes.batch)
    return measure.options(facts or Facts())


def _saves(outcome: Outcome, before: Outcome) -> bool:
    """Whether a rehearsal takes less than another in any phase, or of the card."""
    one, other = outcome.free, before.free
    return (
        most_saved_bytes(outcome, before) > 0
        or one.peak_reserved_bytes < other.peak_reserved_bytes
        or one.peak_total_bytes < other.peak_total_bytes
    )


def _is_installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True

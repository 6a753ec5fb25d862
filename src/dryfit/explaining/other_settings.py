"""What would have happened to a recording under other settings, and on which cards it would have run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dryfit.cards import Card
from dryfit.cards.catalogue import all_cards
from dryfit.explaining.explanation import OnOtherSettings, Outcome
from dryfit.recording.model import DeviceTrace
from dryfit.rehearse.allocator_settings import AllocatorSettings
from dryfit.rehearse.retrace import Retraced, Retraces
from dryfit.units import MIB, format_bytes

# With a fraction PyTorch forbids itself the rest of the card, which here is all its own.
_NEARLY_ALL = 0.999
# A change smaller than this is no reason to change anything.
_LEAST_SHARE = 0.05
# Of settings that differ by less, the likelier to help in other runs too is the better.
_AS_GOOD_SHARE = 0.01


def on_other_settings(
    trace: DeviceTrace,
    retrace: Retraces,
    tried: Sequence[AllocatorSettings],
    *,
    recorded_reserved_bytes: int,
    memory_bytes: int | None,
    card_name: str = "",
) -> OnOtherSettings:
    """Play a recording as it was and under other settings, and say what each would have changed.

    `memory_bytes` is what PyTorch can have of the card, None where that is not known; `card_name` is the card's, "" for
    the recorded one. `recorded_reserved_bytes` is the recorded peak.
    """
    recorded = retrace.recorded
    without_limit = retrace(recorded)
    as_it_was = retrace(memory_bytes=retrace.capacity_bytes) if retrace.capacity_bytes else without_limit
    base = _outcome(retrace, recorded, memory_bytes, without_limit)
    base = replace(base, fits_on=_names(_cards_that_hold(retrace, recorded)))
    others = [_outcome(retrace, settings, memory_bytes, without_limit) for settings in tried]
    best = _best(base, others)
    if best is not None:
        others[best] = replace(others[best], fits_on=_names(_cards_that_hold(retrace, tried[best])))
    fails_as_recorded = (as_it_was.ooms == as_it_was.unserved) and as_it_was.failed_event is None
    is_faithful = as_it_was.peak_reserved_bytes == recorded_reserved_bytes and fails_as_recorded
    return OnOtherSettings(
        torch=without_limit.torch,
        as_recorded=replace(base, sentence=_sentence_of_base(base, card_name)),
        others=tuple(replace(each, sentence=_sentence(each, base, card_name)) for each in others),
        best=best,
        is_faithful=is_faithful,
        doubt="" if is_faithful else _doubt(as_it_was, recorded_reserved_bytes, trace),
    )


def _outcome(
    retrace: Retraces, settings: AllocatorSettings, memory_bytes: int | None, as_recorded: Retraced
) -> Outcome:
    """Where the memory is more than the peak takes, the limit is never met: that needs no playing of its own."""
    free = retrace(settings)
    limited = free
    collects = settings.garbage_collection_threshold > 0
    if memory_bytes is not None and (collects or free.peak_reserved_bytes > memory_bytes or free.ooms):
        fraction = _NEARLY_ALL if collects else None
        limited = retrace(settings, memory_bytes=memory_bytes, memory_fraction=fraction)
    return Outcome(
        settings=settings.text(),
        memory_bytes=memory_bytes,
        peak_reserved_bytes=free.peak_reserved_bytes,
        peak_allocated_bytes=free.peak_allocated_bytes,
        saved_bytes=as_recorded.peak_reserved_bytes - free.peak_reserved_bytes,
        served=None if memory_bytes is None else limited.served_all,
        failed_bytes=limited.failed_bytes,
        retries=limited.retries,
        is_exact=free.begin_is_exact,
    )


def _best(base: Outcome, others: Sequence[Outcome]) -> int | None:
    """The first of those that serve what failed; if nothing failed, of those that reserve about the
    least the first, if that is much less."""
    if base.served is False:
        return next((place for place, each in enumerate(others) if each.served), None)
    if not others:
        return None
    most = max(each.saved_bytes for each in others)
    if most <= _LEAST_SHARE * base.peak_reserved_bytes:
        return None
    as_good = most - _AS_GOOD_SHARE * base.peak_reserved_bytes
    return next(place for place, each in enumerate(others) if each.saved_bytes >= as_good)


def _cards_that_hold(retrace: Retraces, settings: AllocatorSettings) -> list[Card]:
    """The catalogue's cards on which every request is served, with the margin they should have, smallest first.

    Fewer bytes than are in use at the peak cannot do, and more than are reserved without a limit always do; between
    them PyTorch gives back its cache as often as it has to, and only playing tells. More memory never serves less.
    """
    free = retrace(settings)
    if free.ooms:
        return []
    cards = sorted(all_cards(), key=_surely_usable)
    first = _first(cards, free.peak_active_bytes)
    last = _first(cards, free.peak_reserved_bytes)
    while first < last:
        middle = (first + last) // 2
        if retrace(settings, memory_bytes=_surely_usable(cards[middle])).served_all:
            last = middle
        else:
            first = middle + 1
    return cards[first:]


def _surely_usable(card: Card) -> int:
    return card.usable_bytes - card.outside_margin_bytes


def _first(cards: Sequence[Card], need_bytes: int) -> int:
    return next((place for place, card in enumerate(cards) if _surely_usable(card) >= need_bytes), len(cards))


def _names(cards: Sequence[Card]) -> tuple[str, ...]:
    return tuple(card.name for card in cards)


def _sentence_of_base(base: Outcome, card_name: str) -> str:
    peak = f"With the settings of the recording, {format_bytes(base.peak_reserved_bytes)} are reserved at the peak"
    if base.served is None or base.memory_bytes is None:
        return f"{peak}."
    if base.served:
        return f"{peak}, and {_the_card(card_name)} has {format_bytes(base.memory_bytes)} for PyTorch: no OOM."
    return f"{peak} if every request is served, and {_the_card(card_name)} has {format_bytes(base.memory_bytes)}: OOM."


def _sentence(outcome: Outcome, base: Outcome, card_name: str) -> str:
    settings = outcome.settings or "PyTorch's default settings"
    reserved, instead = format_bytes(outcome.peak_reserved_bytes), format_bytes(base.peak_reserved_bytes)
    said = f"With {settings}, reserved memory would have been {reserved} instead of {instead}"
    if abs(outcome.saved_bytes) < MIB:
        said = f"With {settings}, reserved memory would have been the same {instead}"
    if outcome.served is None or (outcome.served and base.served):
        return f"{said}."
    if outcome.served and outcome.memory_bytes is not None and outcome.peak_reserved_bytes > outcome.memory_bytes:
        return (
            f"With {settings}, {_the_card(card_name)} would have served all: no OOM, though PyTorch has to give back "
            f"what it keeps on the way; with more memory it would reserve {reserved} instead of {instead}."
        )
    if outcome.served:
        retries = f", after giving the cache back {_times(outcome.retries)}" if outcome.retries else ""
        return f"{said}: no OOM{retries}."
    failed = f", of a request of {format_bytes(outcome.failed_bytes)}" if outcome.failed_bytes else ""
    return f"{said}: still an OOM{failed} on {_the_card(card_name)}."


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _the_card(name: str) -> str:
    return f"the {name}" if name else "the recorded card"


def _doubt(found: Retraced, recorded_bytes: int, trace: DeviceTrace) -> str:
    if found.failed_event is not None:
        return (
            "Played with the recorded settings and the memory that the recording's events tell of, a request fails "
            "that was served: take what is said about other settings as a hint."
        )
    off = format_bytes(abs(found.peak_reserved_bytes - recorded_bytes))
    more = "more" if found.peak_reserved_bytes > recorded_bytes else "less"
    why = (
        "what was held before the first event is not known exactly"
        if not (trace.starts_empty or found.begin_is_exact)
        else f"the allocator of torch {found.torch} puts some blocks elsewhere than the recorded one"
    )
    return f"Played with the recorded settings, {off} {more} are reserved at the peak than were recorded: {why}."

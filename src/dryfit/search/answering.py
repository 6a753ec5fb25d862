"""One row of a search: for each card the largest value that fits, what surely fits, the law, and how to split."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence

from dryfit.cards import Card, all_cards, cards_that_fit
from dryfit.rehearse.world import World
from dryfit.search.effective import EffectiveBatch, even_splits, uneven_split
from dryfit.search.found import Answer, Need
from dryfit.search.largest import conclusion, next_values
from dryfit.search.law import law_of
from dryfit.search.rehearsing import Rehearsals, Setting, all_at_once
from dryfit.search.trial import FITS, TOO_BIG, Trial

_MOST_CARDS_TRIED = 3
_LEAST_POINTS_OF_A_LAW = 4


def answers_of_row(
    rehearsals: Rehearsals,
    row: Mapping[str, str],
    cards: Sequence[tuple[str, Card]],
    reserve_bytes: int,
    effective: int | None,
    gpus: int,
    world: World | None,
) -> list[Answer]:
    """One row's answers in one world: what the first card shows says where to look on the others."""
    settings = [Setting(gpu=gpu, card=card, reserve_bytes=reserve_bytes, row=row, world=world) for gpu, card in cards]
    split = None if effective is None else (effective, gpus if world is None else world.size)
    first = _answer(rehearsals, settings[0], split, ())
    used = [
        (trial.value, trial.peak_total_bytes - settings[0].card.outside_bytes)
        for trial in first.trials
        if trial.kind == FITS
    ]
    others = [
        functools.partial(
            _answer, rehearsals, setting, split, [(value, size + setting.card.outside_bytes) for value, size in used]
        )
        for setting in settings[1:]
    ]
    return [first, *all_at_once(others, rehearsals)]


def _answer(
    rehearsals: Rehearsals, setting: Setting, split: tuple[int, int] | None, like: Sequence[tuple[int, int]]
) -> Answer:
    values, known = rehearsals.sweep.values, dict[int, Trial]()
    _search(rehearsals, setting, values, known, like)
    found = conclusion(values, known)
    surely, effective, rank = found.largest, None, None if setting.world is None else 0
    of_first, first_rank, last_rank = known, None, None
    if found.largest is not None:
        if not like:  # the law of another card is much the same, and seen already
            _see_the_law(rehearsals, setting, values, known, found.largest)
        world = setting.world
        if world is not None and world.size > 1:
            setting, decided, last_rank = _with_last_rank(rehearsals, setting, values, known, found.largest)
            if setting.is_last_rank:
                rank, known = world.size - 1, decided
                found = conclusion(values, known)
                first_rank = of_first.get(last_rank.value)
    if found.largest is not None:
        surely = _surely(rehearsals, setting, values, known, found.largest)
        if split is not None:
            effective = _effective(rehearsals, setting, values, known, split, surely or found.largest)
        found = conclusion(values, known)
    trials = tuple(sorted(known.values(), key=lambda trial: trial.value))
    return Answer(
        gpu=setting.gpu,
        card=setting.card.to_dict(),
        row=dict(setting.row),
        world=setting.world.size if setting.world is not None else None,
        rank=rank,
        first_rank=first_rank,
        last_rank=last_rank,
        largest=found.largest,
        surely=surely,
        beyond=found.beyond,
        multiple_of=found.multiple_of,
        out_of_order=found.out_of_order,
        law=law_of(tuple(sorted(of_first.values(), key=lambda trial: trial.value))),
        effective=effective,
        need=_need(rehearsals, setting, trials[0]) if found.largest is None and trials[0].kind == TOO_BIG else None,
        trials=trials,
    )


def _with_last_rank(
    rehearsals: Rehearsals, setting: Setting, values: Sequence[int], known: dict[int, Trial], largest: int
) -> tuple[Setting, dict[int, Trial], Trial]:
    """Rehearse the largest value that fits as the last rank too, and smaller ones where it does not fit there.

    Of smaller ones the largest that both ranks hold is looked for. Returned are the setting and the rehearsals of the
    rank that decides, with what does not fit on the first, and the last rank's of that largest value; what is learnt of
    the first goes into `known`.
    """
    last = dataclasses.replace(setting, is_last_rank=True)
    of_last = rehearsals.try_all(last, [largest])
    found = of_last[largest]
    if found.kind == FITS:
        decides = found.peak_total_bytes > known[largest].peak_total_bytes
        do_not_fit = {value: trial for value, trial in known.items() if trial.kind != FITS}
        return (last, do_not_fit | of_last, found) if decides else (setting, known, found)
    up_to_largest = values[: list(values).index(largest) + 1]
    while True:
        _search(rehearsals, last, up_to_largest, of_last)
        smaller = conclusion(values, of_last).largest
        if smaller is None:
            break
        if smaller not in known:
            known |= rehearsals.try_all(setting, [smaller])
        if known[smaller].kind == FITS:
            break
        of_last[smaller] = known[smaller]
    beyond = {value: trial for value, trial in known.items() if value > largest}
    return last, beyond | of_last, of_last[largest if smaller is None else smaller]


def _search(
    rehearsals: Rehearsals,
    setting: Setting,
    values: Sequence[int],
    known: dict[int, Trial],
    like: Sequence[tuple[int, int]] = (),
) -> None:
    """Rehearse until the largest value that fits, and the next one, are known; what is learnt goes into `known`."""
    room_bytes, width = setting.card.total_bytes - setting.reserve_bytes, rehearsals.jobs
    while wanted := next_values(values, known, room_bytes=room_bytes, width=width, like=like):
        known |= rehearsals.try_all(setting, wanted)


def _see_the_law(
    rehearsals: Rehearsals, setting: Setting, values: Sequence[int], known: dict[int, Trial], largest: int
) -> None:
    """Rehearse values between the smallest and the largest that fit, where too few were: a line needs to be seen."""
    fitting = [value for value, trial in known.items() if trial.kind == FITS]
    missing = _LEAST_POINTS_OF_A_LAW - len({value for value in fitting if value < largest - largest // 8}) - 1
    factor = conclusion(values, known).multiple_of
    between = [v for v in values if v <= largest and v % factor == 0 and v not in known]
    wanted = [max((v for v in between if v <= largest * share // 4), default=None) for share in (2, 3, 1)]
    chosen = list(dict.fromkeys(value for value in wanted if value is not None))[: max(missing, 0)]
    if chosen:
        known |= rehearsals.try_all(setting, chosen)


def _surely(
    rehearsals: Rehearsals, setting: Setting, values: Sequence[int], known: Mapping[int, Trial], largest: int
) -> int | None:
    """The largest value that fits with the whole margin taken outside the allocator; None if none does.

    The margin of the largest holds for smaller ones: what is outside does not depend on the batch, and DDP's first
    buckets raise the peak of a smaller one by no more.
    """
    if not known[largest].is_close:
        return largest
    reserve_bytes = max(setting.reserve_bytes, known[largest].margin_bytes)
    strict = dataclasses.replace(setting, reserve_bytes=reserve_bytes)
    settled = {value: trial for value, trial in known.items() if not (trial.kind == FITS and trial.is_close)}
    _search(rehearsals, strict, values[: list(values).index(largest) + 1], settled)
    return conclusion(values, settled).largest


def _effective(
    rehearsals: Rehearsals,
    setting: Setting,
    values: Sequence[int],
    known: dict[int, Trial],
    split: tuple[int, int],
    largest: int,
) -> EffectiveBatch:
    """The split with the largest micro-batch that was rehearsed and fits."""
    for even in even_splits(*split, values, largest):
        if even.micro not in known:
            known |= rehearsals.try_all(setting, [even.micro])
        if known[even.micro].kind == FITS:
            return even
    return uneven_split(*split, largest)


def _need(rehearsals: Rehearsals, setting: Setting, smallest: Trial) -> Need | None:
    """What the smallest value takes on this chip without a limit, and the smallest card that it was seen to fit on."""
    value = smallest.value
    without_limit = rehearsals.without_limit(setting, value)
    if without_limit.kind != FITS:
        return None
    used_bytes = without_limit.peak_total_bytes - setting.card.outside_bytes
    candidates = cards_that_fit(used_bytes + setting.reserve_bytes, all_cards()).fits
    for card in candidates[:_MOST_CARDS_TRIED]:
        other = dataclasses.replace(setting, gpu=card.key, card=card)
        if rehearsals.try_all(other, [value])[value].kind == FITS:
            return Need(value=value, peak_total_bytes=without_limit.peak_total_bytes, card=card.key)
    return Need(value=value, peak_total_bytes=without_limit.peak_total_bytes, card=None)

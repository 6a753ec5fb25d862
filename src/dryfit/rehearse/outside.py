"""What lies on a card outside PyTorch's allocator: a CUDA context for each process that uses it, and NCCL's buffers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dryfit.cards import Card, outside_bytes_of_any
from dryfit.cards.eager import EAGER_HIGH_BYTES, EAGER_LOW_BYTES, VARIABLE, counts_eager_loading, loads_eagerly
from dryfit.rehearse.events import Event
from dryfit.rehearse.processes import Process
from dryfit.rehearse.total import NCCL, OUTSIDE, Part
from dryfit.units import format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class OnCard:
    """What one process has on the card that is judged by: the most it took of it, and NCCL's low, expected and high."""

    used_bytes: int
    nccl_bytes: tuple[int, int, int] = (0, 0, 0)


def sharing(processes: Sequence[Process], *, devices: int) -> list[OnCard]:
    """The processes that use the card of which the first process took most; that one comes first.

    Where there is one card, all do. Of several, those do that took memory of it, whatever they took of the others.
    """
    if not processes:
        return []
    main, *others = processes
    board, first = _most_used(main)
    found = [OnCard(used_bytes=main.used_peak_bytes, nccl_bytes=first.nccl_bytes)]
    for other in others:
        if devices == 1:
            found.append(OnCard(used_bytes=other.used_peak_bytes, nccl_bytes=_most_used(other)[1].nccl_bytes))
        elif board in (there := _by_board(other)):
            found.append(there[board])
    return found


def _by_board(process: Process) -> dict[int, OnCard]:
    return {
        use["board"]: OnCard(
            used_bytes=use["most_used_bytes"],
            nccl_bytes=(use["nccl_low_bytes"], use["nccl_expected_bytes"], use["nccl_high_bytes"]),
        )
        for use in (process.end or {}).get("devices", [])
    }


def _most_used(process: Process) -> tuple[int | None, OnCard]:
    """The card of which a process took most; None where it did not say."""
    boards = _by_board(process)
    if not boards:
        return None, OnCard(used_bytes=process.used_peak_bytes)
    board = max(boards, key=lambda each: boards[each].used_bytes + boards[each].nccl_bytes[1])
    return board, boards[board]


def parts(on_card: Sequence[OnCard], card: Card, *, card_was_named: bool) -> list[Part]:
    """The contexts of these processes, and NCCL's buffers if there are any.

    Without a named card the contexts are those of some card of the catalogue.
    """
    if card_was_named:
        high_bytes = card.outside_bytes + card.outside_margin_bytes
        each = (card.outside_low_bytes, card.outside_bytes, high_bytes)
    else:
        each = outside_bytes_of_any()
    low, expected, high = (len(on_card) * size for size in each)
    found = [Part(what=OUTSIDE, low_bytes=low, expected_bytes=expected, high_bytes=high)]
    low, expected, high = (sum(process.nccl_bytes[end] for process in on_card) for end in range(3))
    if high:
        found.append(Part(what=NCCL, low_bytes=low, expected_bytes=expected, high_bytes=high))
    return found


def notes(end: Event | None, found: Sequence[Part], card: Card) -> list[str]:
    """Say what the range of NCCL's buffers comes from, and what eager loading adds, or would."""
    said = []
    nccl = next((part for part in found if part.what == NCCL), None)
    if nccl is not None:
        made = (end or {}).get("communicators", [])
        said.append(
            f"NCCL's buffers are those of {len(made)} communicator{'' if len(made) == 1 else 's'}, by NCCL's source. "
            f"The links between the cards decide them, and are not known here: {format_bytes(nccl.low_bytes)} to "
            f"{format_bytes(nccl.high_bytes)}."
        )
    if end is not None and loads_eagerly({VARIABLE: end.get("module_loading") or ""}):
        range_of_it = f"{format_bytes(EAGER_LOW_BYTES)} to {format_bytes(EAGER_HIGH_BYTES)}"
        if counts_eager_loading(card):
            said.append(
                f"{VARIABLE}=EAGER: CUDA loads every kernel at the start, which adds {range_of_it}. That is from a "
                "measurement with torch 2.1 and from the size of the code in torch 2.14, which nobody has measured."
            )
        else:
            said.append(
                f"The program runs with {VARIABLE}=EAGER, which adds {range_of_it} and is not counted. Set it in the "
                "environment of `dryfit run --gpu`, or leave it out."
            )
    return said

"""How far the peaks depend on where the driver puts PyTorch's segments: a rehearsal's recording under other orders.

No program runs again: what it asked of the allocator is played through the same allocator, on the same card, with
segments placed in each order of `virtual_card.settings.ADDRESS_ORDERS`. In its own order it has to come to the very
bytes of the rehearsal, or nothing is said of the others.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dryfit.cards import Card
from dryfit.errors import DryfitError
from dryfit.recording.model import ALLOC, OOM, Recording
from dryfit.rehearse import ties, total
from dryfit.rehearse.allocator_settings import recorded_settings
from dryfit.rehearse.assemble import Observed
from dryfit.rehearse.cards_by_parts import cards_by_parts
from dryfit.rehearse.endings import EXIT_LIMIT, OUT_OF_MEMORY, WHOLE
from dryfit.rehearse.requests import requests_of
from dryfit.rehearse.result import DOES_NOT_FIT, FITS, UNKNOWN, OrderPeaks, Result
from dryfit.rehearse.retrace import AllocatorProcess, Retraced, allocator_process
from dryfit.rehearse.total import Part
from dryfit.units import format_bytes
from dryfit.virtual_card import TorchBuild
from dryfit.virtual_card.settings import ADDRESS_ORDERS, AddressOrder, CardSettings

SAME, RAN_OUT, SERVED, RAN_ON = "same", "out of memory", "served", "ran on"  # of `OrderPeaks.ending`
_WORTH_A_NOTE = 0.01  # of reserved memory
_HOW: dict[str, str] = {"linux": "placed as Linux drivers do", "up": "placed upwards", "down": "placed downwards"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What was found: `orders`, empty where addresses decide nothing or it is not known; then `why_not` says why.

    `runs_out_with_margin` are the orders under which the program would run out of memory if what is outside PyTorch's
    allocator were as much more than expected as it may be.
    """

    orders: Mapping[str, OrderPeaks] = dataclasses.field(default_factory=dict)
    runs_out_with_margin: tuple[str, ...] = ()
    why_not: str = ""


@contextlib.contextmanager
def allocator_on_standby(torch: TorchBuild) -> Iterator[AllocatorProcess | None]:
    """A process that imports torch while the program runs; None where addresses decide nothing."""
    if not ties.go_by_address(torch.version):
        yield None
        return
    with allocator_process() as process:
        yield process


def with_address_orders(
    result: Result,
    observed: Observed,
    card: Card,
    settings: CardSettings,
    process: AllocatorProcess | None,
    run_again: Callable[[str], Result],
) -> Result:
    """The result with its peaks under other orders of addresses, and the verdict that they allow.

    `settings` are what the program ran on. `run_again` rehearses the program in another order; it is called where a
    request that failed would be served in that order, for then the recording does not say what comes next.
    """
    try:
        played = play(result, observed, card, settings, process)
    except DryfitError as error:
        played = Played(why_not=str(error))
    if played.why_not:
        note = f"How far the peaks depend on the order of segment addresses is not known. {played.why_not}"
        return dataclasses.replace(result, notes=[*result.notes, note])
    if not played.orders:
        return result
    result = _with_span(result, played.orders, settings.order)
    return _with_verdict(result, played, settings.order, run_again)


def doubt(result: Result) -> str:
    """Why the order of addresses leaves the verdict open, for the end of a sentence; "" where it does not."""
    if result.verdict != UNKNOWN:
        return ""
    for order, peaks in result.peaks_by_address_order.items():
        if peaks.ending in (RAN_OUT, RAN_ON):
            return f"with segments {_HOW[order]} it {'runs out of memory' if peaks.ending == RAN_OUT else 'does not'}"
    return ""


def play(
    result: Result, observed: Observed, card: Card, settings: CardSettings, process: AllocatorProcess | None
) -> Played:
    """Play the recording of the process that the result's figures are of, in every order that can differ.

    Raises:
        DryfitError: the process with the allocator ended.
    """
    if process is None or not result.peak_reserved_bytes or result.ending.how not in (*WHOLE, OUT_OF_MEMORY):
        return Played()
    recording = observed.recordings.get(result.processes[0]["pid"])
    if why_not := _why_not(result, observed, recording):
        return Played(why_not=why_not)
    assert recording is not None
    allocator_settings = recording.about.get("allocator_settings")
    if not any(ties.may_decide(trace, allocator_settings) for trace in recording.devices):
        return Played()
    return play_recording(process, recording, result, card, settings)


def play_recording(
    process: AllocatorProcess, recording: Recording, result: Result, card: Card, settings: CardSettings
) -> Played:
    """Play a recording in every order, whatever the version of torch, as the result says that it ran."""
    allowed_bytes = result.out_of_memory.allowed_bytes if result.out_of_memory is not None else settings.memory_bytes
    # What else the process took of the card, such as a library's own buffers: all of it from the start.
    other_bytes = max(0, result.processes[0]["peak_used_bytes"] - result.peak_reserved_bytes)
    plays = _Plays(
        process=process,
        recording=recording,
        card=dataclasses.replace(settings, outside_bytes=settings.outside_bytes + other_bytes, count=1),
        memory_fraction=allowed_bytes / settings.memory_bytes if allowed_bytes < settings.memory_bytes else None,
    )
    own = plays.under(settings.order)
    if own != _peaks_of(result):
        return Played(
            why_not=f"Played again as it was, the recording comes to {own.peak_allocated_bytes:,} bytes allocated and "
            f"{own.peak_reserved_bytes:,} reserved, against {result.peak_allocated_bytes:,} and "
            f"{result.peak_reserved_bytes:,}{'' if own.ending == SAME else ', and ends another way'}."
        )
    orders: dict[str, OrderPeaks] = {
        order: own if order == settings.order else plays.under(order) for order in ADDRESS_ORDERS
    }
    if result.verdict != FITS:
        return Played(orders=orders)
    beside_bytes = total.has_to_fit_bytes(result.total_parts) - result.peak_reserved_bytes
    close = [
        order
        for order in ADDRESS_ORDERS
        if order != settings.order and orders[order].peak_reserved_bytes + beside_bytes > card.total_bytes
    ]
    with_margin = {order: plays.under(order, more_outside_bytes=card.outside_margin_bytes) for order in close}
    runs_out = tuple(order for order, peaks in with_margin.items() if peaks.ending == RAN_OUT)
    return Played(orders=orders, runs_out_with_margin=runs_out)


class _Plays:
    """The recording of one process, to be played in any order."""

    def __init__(
        self, *, process: AllocatorProcess, recording: Recording, card: CardSettings, memory_fraction: float | None
    ) -> None:
        self._process, self._card, self._memory_fraction = process, card, memory_fraction
        self._settings = recorded_settings(recording.about.get("allocator_settings"))
        traces = [trace for trace in recording.devices if ALLOC in trace.events.kind]
        self._requests = [requests_of(trace, self._settings, self._settings) for trace in traces]
        self._failures = [sum(kind == OOM for kind in trace.events.kind) for trace in traces]

    def under(self, order: AddressOrder, *, more_outside_bytes: int = 0) -> OrderPeaks:
        """The highest peaks of all devices, as a result has them."""
        outside_bytes = min(self._card.outside_bytes + more_outside_bytes, self._card.memory_bytes - 1)
        card = dataclasses.replace(self._card, order=order, outside_bytes=outside_bytes)
        found = [
            self._process.play(requests, self._settings, memory_fraction=self._memory_fraction, card=card)
            for requests in self._requests
        ]
        return OrderPeaks(
            peak_allocated_bytes=max(each.peak_allocated_bytes for each in found),
            peak_reserved_bytes=max(each.peak_reserved_bytes for each in found),
            ending=_ending(found, self._failures),
        )


def _ending(found: list[Retraced], failures: list[int]) -> str:
    if any(each.failed_event is not None for each in found):
        return RAN_OUT
    return SAME if all(each.unserved == count for each, count in zip(found, failures, strict=True)) else SERVED


def _why_not(result: Result, observed: Observed, recording: Recording | None) -> str:
    backend = result.allocator_settings.get("backend", "native")
    if backend != "native":
        return f"It is the driver that places blocks with PyTorch's backend {backend}."
    if recording is None:
        return "There is no recording of the process."
    if observed.devices == 1 and len(result.processes) > 1:
        return "Several processes share the card, and their requests took turns."
    if recording.about.get("is_cut") or recording.about.get("lost_events"):
        return "There were more events than a recording keeps."
    return ""


def _with_span(result: Result, orders: Mapping[str, OrderPeaks], own: str) -> Result:
    """The result with the peaks, and their span where the orders do not agree."""
    result = dataclasses.replace(result, peaks_by_address_order={**orders})
    reserved_bytes = {order: peaks.peak_reserved_bytes for order, peaks in orders.items() if peaks.ending == SAME}
    low, high = (end(reserved_bytes.values(), default=result.peak_reserved_bytes) for end in (min, max))
    if low == high:
        return result
    less, more = result.peak_reserved_bytes - low, high - result.peak_reserved_bytes
    span = Part(what=total.ADDRESSES, low_bytes=-less, expected_bytes=0, high_bytes=more, gives_way=True)
    parts = [*result.total_parts, span]
    changes: dict[str, Any] = {"total_parts": parts, "peak_total_range_bytes": total.range_of(parts)}
    if result.card is None:
        changes |= cards_by_parts(parts)
    if less + more > _WORTH_A_NOTE * result.peak_reserved_bytes:
        lowest, highest = (end(reserved_bytes, key=reserved_bytes.__getitem__) for end in (min, max))
        changes["notes"] = [
            *result.notes,
            "The addresses of segments decide between free blocks that fit equally well: PyTorch reserves "
            f"{format_bytes(low)} with segments {_HOW[lowest]}, {format_bytes(high)} with segments {_HOW[highest]}. "
            f"The figures are of the order {own}; --address-order chooses.",
        ]
    return dataclasses.replace(result, **changes)


def _peaks_of(result: Result, ending: str = SAME) -> OrderPeaks:
    return OrderPeaks(
        peak_allocated_bytes=result.peak_allocated_bytes, peak_reserved_bytes=result.peak_reserved_bytes, ending=ending
    )


def _with_verdict(result: Result, played: Played, own: str, run_again: Callable[[str], Result]) -> Result:
    """The result with a verdict that holds under every order, or none."""
    others = {order: peaks for order, peaks in played.orders.items() if order != own}
    if result.verdict == FITS:
        for order, peaks in others.items():
            if peaks.ending == RAN_OUT:
                return _unknown(result, f"{_with_segments(order)} it runs out of memory on this card.")
            if order in played.runs_out_with_margin:
                note = (
                    f"{_with_segments(order)}, and as much outside PyTorch's allocator as there may be, it runs out of "
                    "memory on this card."
                )
                return _unknown(_in_order(result, order, dataclasses.replace(peaks, ending=RAN_OUT)), note)
    if result.verdict == DOES_NOT_FIT:
        for order in (order for order, peaks in others.items() if peaks.ending == SERVED):
            second = run_again(order)
            note = f"{_with_segments(order)} the request that failed is served"
            result = dataclasses.replace(result, wall_seconds=round(result.wall_seconds + second.wall_seconds, 3))
            if second.verdict == DOES_NOT_FIT:
                note = f"{note}, and a later one fails: a second run said so."
                result = _in_order(result, order, _peaks_of(second))
                result = dataclasses.replace(result, notes=[note, *result.notes])
            elif second.ending.how in WHOLE:
                result = _in_order(result, order, _peaks_of(second, RAN_ON))
                return _unknown(result, f"{note}, and the program runs on: a second run said so.")
            else:
                return _unknown(result, f"{note}; a second run came to no answer: {second.ending.sentence}")
    return result


def _with_segments(order: str) -> str:
    return f"With segments {_HOW[order]} (--address-order {order})"


def _in_order(result: Result, order: str, peaks: OrderPeaks) -> Result:
    return dataclasses.replace(result, peaks_by_address_order={**result.peaks_by_address_order, order: peaks})


def _unknown(result: Result, note: str) -> Result:
    ranks = [
        dataclasses.replace(each, verdict=UNKNOWN) if result.world and each.rank == result.world.rank else each
        for each in result.ranks
    ]
    return dataclasses.replace(result, verdict=UNKNOWN, ranks=ranks, exit_code=EXIT_LIMIT, notes=[note, *result.notes])

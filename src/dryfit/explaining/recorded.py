"""Explains a snapshot or a recording, one card after the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dryfit.analyse.analysis import Analysis, analyse
from dryfit.analyse.footprint import FailedRequest
from dryfit.analyse.lines import lines_of
from dryfit.cards import Card
from dryfit.errors import DryfitError
from dryfit.explaining.cause import cause_of_failure, cause_on_card, next_step_without_failure
from dryfit.explaining.explanation import (
    NOT_ASKED,
    RECORDING,
    SNAPSHOT,
    ExplainedCard,
    Explanation,
    OnOtherSettings,
)
from dryfit.explaining.gathered import what_gathered
from dryfit.explaining.other_settings import on_other_settings
from dryfit.explaining.worth_trying import as_asked
from dryfit.findings import Finding, Place
from dryfit.recording.model import ALLOC, OOM, Recording
from dryfit.rehearse.allocator_settings import AllocatorSettings, parse_settings, recorded_settings
from dryfit.rehearse.requests import requests_of
from dryfit.rehearse.retrace import retraces
from dryfit.units import format_bytes

_PACKED = (
    "What was held when the recording began is, under other settings, placed side by side: what lay between it is not "
    "counted, which flatters them a little."
)


def explain_recording(
    recording: Recording,
    name: str,
    *,
    retrace: bool = True,
    card: Card | None = None,
    settings: str | Iterable[str] | None = None,
) -> Explanation:
    """Say who owned the peak of a recording, why a request failed, and what other settings would have changed.

    `card` is what it would run on; of the one it was recorded on, it tells what the events do not. `settings` are those
    to try in place of the ones worth trying.

    Raises:
        UsageError: the recording has no card, is damaged, or the settings are none.
    """
    asked = settings if settings is None or isinstance(settings, str) else list(settings)
    for text in [asked] if isinstance(asked, str) else asked or ():
        parse_settings(text)  # before anything takes its time
    failures: list[int | None] = [trace.device for trace in recording.devices if OOM in trace.events.kind]
    cards = tuple(
        _explained(analyse(recording, device), asked, retrace=retrace, card=card)
        for device in failures or [None]  # of all cards the one with the highest peak
    )
    findings = tuple(each.finding for each in cards if each.finding is not None)
    first = cards[0]
    has_events = any(trace.device == first.device and ALLOC in trace.events.kind for trace in recording.devices)
    step = (
        findings[0].advice
        if findings
        else next_step_without_failure(first.would_have, first.footprint, has_events=has_events)
    )
    return Explanation(
        kind=SNAPSHOT if recording.source == "snapshot" else RECORDING,
        name=name,
        findings=findings,
        cards=cards,
        next_step=step,
        notes=tuple(dict.fromkeys(note for each in cards for note in _notes(each))),
    )


def _explained(
    analysis: Analysis, asked: str | Sequence[str] | None, *, retrace: bool, card: Card | None
) -> ExplainedCard:
    about, footprint = analysis.recording.about, analysis.footprint
    failed = footprint.out_of_memory
    recorded = recorded_settings(about.get("allocator_settings"))
    place = _place_of(analysis, failed) if failed else None
    # A named card where a request failed is the one it failed on: there the events tell better what PyTorch could have.
    capacity = requests_of(analysis.trace, recorded, recorded).capacity_bytes
    memory_bytes = capacity if failed or card is None else card.usable_bytes
    why_not = _why_not(analysis, retrace=retrace)
    would_have = None
    if not why_not:
        try:
            would_have = _would_have(
                analysis, recorded, asked, memory_bytes, "" if failed or card is None else card.name
            )
        except DryfitError as error:
            why_not = str(error)
    finding: Finding | None = None
    if (gathered := what_gathered(analysis, failed, place)) is not None:
        finding = gathered
    elif failed is not None:
        finding = cause_of_failure(failed, footprint, place, recorded, would_have, card)
    elif card is not None and would_have is not None:
        finding = cause_on_card(footprint, card, would_have)
    return ExplainedCard(
        device=footprint.device,
        footprint=footprint,
        failed=failed,
        failed_at=place,
        capacity_bytes=memory_bytes,
        settings=recorded.text(),
        would_have=would_have,
        finding=finding,
        why_not_retraced=why_not,
    )


def _would_have(
    analysis: Analysis,
    recorded: AllocatorSettings,
    asked: str | Sequence[str] | None,
    memory_bytes: int | None,
    card_name: str,
) -> OnOtherSettings:
    with retraces(analysis.trace, analysis.recording.about.get("allocator_settings")) as retrace:
        return on_other_settings(
            analysis.trace,
            retrace,
            as_asked(asked, recorded),
            recorded_reserved_bytes=analysis.footprint.peak_reserved_bytes,
            memory_bytes=memory_bytes,
            card_name=card_name,
        )


def _why_not(analysis: Analysis, *, retrace: bool) -> str:
    """Why other settings are not tried; "" if they are."""
    if not retrace:
        return NOT_ASKED
    if ALLOC not in analysis.trace.events.kind:
        return (
            "The snapshot has the state of a moment and no events, so nothing can be played under other settings: "
            "record with torch.cuda.memory._record_memory_history()."
        )
    settings = analysis.recording.about.get("allocator_settings")
    text = str((settings or {}).get("PYTORCH_CUDA_ALLOC_CONF", ""))
    if "cudaMallocAsync" in text:
        return "It was recorded with cudaMallocAsync, an allocator that has no segments and none of these settings."
    return ""


def _place_of(analysis: Analysis, failed: FailedRequest) -> Place | None:
    stacks = analysis.recording.stacks
    line_of, lines = lines_of(stacks)
    file, line, function = lines[line_of[analysis.trace.events.stack[failed.event]]]
    return Place(file=file, line=line, function=function) if file else None


def _notes(card: ExplainedCard) -> Iterable[str]:
    if card.why_not_retraced not in ("", NOT_ASKED):
        yield card.why_not_retraced
    found = card.would_have
    if found is None:
        return
    if found.doubt:
        yield found.doubt
    base = found.as_recorded
    if base.memory_bytes is not None and base.peak_reserved_bytes > base.memory_bytes:
        yield (
            "The peaks under other settings are those with as much memory as it takes; on that card PyTorch could have "
            f"{format_bytes(base.memory_bytes)}."
        )
    if not all(outcome.is_exact for outcome in found.others):
        yield _PACKED
    if card.failed is not None and any(outcome.served for outcome in found.others):
        yield "A recording ends where memory ran out: what the program would have asked for after that is not in it."
    yield f"Other settings were tried with the allocator of the installed torch {found.torch}."

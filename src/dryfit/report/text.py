"""A result in the terminal: the verdict line first, then the numbers, then what is not known."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TextIO

from dryfit.places import as_seen_from_here
from dryfit.rehearse import growth
from dryfit.rehearse.address_orders import doubt
from dryfit.rehearse.endings import OUT_OF_MEMORY, WHOLE
from dryfit.rehearse.result import DOES_NOT_FIT, FITS, Communication, Result, Unknown, sent_bytes_of
from dryfit.rehearse.total import ADDRESSES, Part, has_to_fit_bytes
from dryfit.report.columns import aligned
from dryfit.report.findings import print_findings
from dryfit.report.footprint import print_owners
from dryfit.report.terminal import open_console, sentence
from dryfit.units import format_bytes

if TYPE_CHECKING:
    from rich.console import Console

_MOST_STEPS_SHOWN = 8
_MOST_RANKS_SHOWN = 8
_MOST_UNKNOWNS_SHOWN = 8
_MOST_CARDS_NAMED = 6


def print_result(result: Result, file: TextIO | None = None) -> None:
    """Print a result; colour and width as the terminal has them, plain text where there is none."""
    console = open_console(file)
    sentence(console, " ".join(verdict_line(result).splitlines()), style=f"bold {_colour(result)}")
    for note in result.world_notes:
        sentence(console, note)
    if result.peak_reserved_bytes:
        console.print()
        _numbers(console, result)
    if result.footprint is not None:
        print_owners(console, result.footprint)
    if len(result.step_peaks) > 1:
        console.print()
        _steps(console, result)
    if result.ranks:
        console.print()
        _ranks(console, result)
    if result.communication:
        console.print()
        sentence(console, communication_line(result.communication, counts_steps=result.steps > 0))
    print_findings(console, result.findings)
    if result.out_of_memory is not None and result.out_of_memory.message:
        console.print()
        _print(console, f"PyTorch's own error: {result.out_of_memory.message}".splitlines())
    said_first = [verdict_line(result), *result.world_notes]
    said_last = [] if result.ending.sentence in said_first[0] else [result.ending.sentence]
    said_last += [note for note in result.notes if note not in said_first]
    if said_last:
        console.print()
    for note in said_last:
        _print(console, note.splitlines())
    _unknowns(console, result.unknowns)


def verdict_line(result: Result) -> str:
    """The answer in one line.

    FITS on NVIDIA GeForce RTX 4090: needs 10.29 GiB of 23.52 GiB, 13.23 GiB to spare
    """
    need = format_bytes(result.peak_total_bytes)
    if not result.peak_total_bytes and result.out_of_memory is None:
        return f"NOTHING MEASURED{_as_rank(result)}: {result.ending.sentence}"
    if result.card is None:
        return _need_line(result)
    name, total_bytes = result.card["name"] + _as_rank(result), result.card["total_bytes"]
    if result.verdict == DOES_NOT_FIT:
        return f"DOES NOT FIT on {name}: out of memory {_where_oom(result)}"
    if result.verdict == FITS:
        spare = format_bytes(total_bytes - result.peak_total_bytes)
        but = ", apart from what is listed below as not known" if result.is_apart_from_unknowns else ""
        return f"FITS on {name}: needs {need} of {format_bytes(total_bytes)}, {spare} to spare{but}"
    if growth_bytes := growth.of_result(result):
        more = format_bytes(growth_bytes)
        return f"UNKNOWN on {name}: took {need} of {format_bytes(total_bytes)}, and about {more} more with each step"
    if result.ending.how in (*WHOLE, OUT_OF_MEMORY):
        what = f"needs {need} of {format_bytes(total_bytes)}"
        if result.ending.how == OUT_OF_MEMORY:
            what = f"ran out of memory {_where_oom(result)}"
        why = doubt(result) or (
            f"what is outside PyTorch's allocator is known to ± {format_bytes(_margin_bytes(result))} only"
        )
        return f"TOO CLOSE TO CALL on {name}: {what}; {why}"
    return f"UNKNOWN on {name}: took {need} of {format_bytes(total_bytes)} until it was over. {result.ending.sentence}"


def _as_rank(result: Result) -> str:
    if result.world is None or result.world_notes:
        return ""
    return f" as rank {result.world.rank} of {result.world.size}"


def _need_line(result: Result) -> str:
    reserved = f"{format_bytes(result.peak_reserved_bytes)} reserved by PyTorch"
    if result.ending.how not in (*WHOLE, OUT_OF_MEMORY):
        return f"UNKNOWN{_as_rank(result)}: took {reserved} until it was over. {result.ending.sentence}"
    need = f"NEEDS {reserved}{_as_rank(result)}"
    if not result.fits_on:
        return f"{need}; no card of the catalogue holds it"
    named = ", ".join(result.fits_on[:_MOST_CARDS_NAMED])
    more = len(result.fits_on) - _MOST_CARDS_NAMED
    return f"{need}; fits on {named}{f' and {more} more' if more > 0 else ''}"


def _where_oom(result: Result) -> str:
    oom = result.out_of_memory
    if oom is None:
        return "before anything was measured"
    asked, free = format_bytes(oom.requested_bytes), format_bytes(oom.free_bytes)
    return f"in {_step(oom.step)}, {oom.phase}: {asked} asked for, {free} free"


def _step(step: int) -> str:
    return f"step {step}" if step else "the setup"


def _colour(result: Result) -> str:
    return {FITS: "green", DOES_NOT_FIT: "red"}.get(result.verdict, "yellow" if result.card else "cyan")


def _margin_bytes(result: Result) -> int:
    """What may be above the expected total, and would have to fit."""
    return has_to_fit_bytes(result.total_parts) - result.peak_total_bytes


def _of_parts(result: Result) -> str:
    """How far each part's range reaches, in words; the widest first."""
    doubts = sorted((each for each in result.total_parts if not each.is_certain), key=_width, reverse=True)
    return "; ".join(_reach(each) for each in doubts)


def _width(part: Part) -> int:
    return part.high_bytes - part.low_bytes


def _reach(part: Part) -> str:
    less, more = part.expected_bytes - part.low_bytes, part.high_bytes - part.expected_bytes
    if less == more:
        return f"± {format_bytes(more)}, {part.what}"
    reaches = " or ".join(f"{format_bytes(size)} {word}" for size, word in ((less, "less"), (more, "more")) if size)
    return f"up to {reaches}, {part.what}"


def _by_address_order(result: Result) -> str:
    part = next((each for each in result.total_parts if each.what == ADDRESSES), None)
    if part is None:
        return ""
    low, high = (format_bytes(result.peak_reserved_bytes + each) for each in (part.low_bytes, part.high_bytes))
    return f"{low} to {high} by the order of addresses"


def _numbers(console: Console, result: Result) -> None:
    where = f"{_step(result.peak_step)}, {result.peak_phase}" if result.peak_step else "the setup"
    rows = [
        ("allocated by tensors", format_bytes(result.peak_allocated_bytes), where),
        ("reserved by PyTorch", format_bytes(result.peak_reserved_bytes), _by_address_order(result)),
    ]
    total = result.peak_total_range_bytes
    if result.card is not None:
        rows += [
            ("nvidia-smi would show", format_bytes(result.peak_total_bytes), _of_parts(result)),
            ("the card has", format_bytes(result.card["total_bytes"]), result.card["name"]),
        ]
    else:
        shown = f"{format_bytes(total['low'])} to {format_bytes(total['high'])}"
        rows.append(("nvidia-smi would show", format_bytes(result.peak_total_bytes), f"{shown}, by the card"))
        if result.close_on:
            rows.append(("too close to call on", "", ", ".join(result.close_on[:_MOST_CARDS_NAMED])))
        if result.does_not_fit_on:
            rows.append(("does not fit on", "", _largest_last(result.does_not_fit_on)))
    _print(console, aligned(rows, right={1}))


def _largest_last(cards: list[str]) -> str:
    shown = cards[-_MOST_CARDS_NAMED:]
    return ("... " if len(cards) > len(shown) else "") + ", ".join(shown)


def _steps(console: Console, result: Result) -> None:
    rows = [("step", "allocated", "reserved", "peak in")]
    for peak in result.step_peaks[:_MOST_STEPS_SHOWN]:
        sizes = (format_bytes(peak.peak_allocated_bytes), format_bytes(peak.peak_reserved_bytes))
        rows.append((str(peak.step), *sizes, peak.peak_phase) if peak.step else ("setup", *sizes, ""))
    _print(console, aligned(rows, right={0, 1, 2}))
    if len(result.step_peaks) > _MOST_STEPS_SHOWN:
        _print(console, [f"... and {len(result.step_peaks) - _MOST_STEPS_SHOWN} more steps; --json has them all."])


def _ranks(console: Console, result: Result) -> None:
    """The ranks that took most; all are in the JSON."""
    ranks = result.ranks
    shown = sorted(ranks, key=lambda peak: (-peak.peak_total_bytes, -peak.peak_allocated_bytes, peak.rank))[
        :_MOST_RANKS_SHOWN
    ]
    rows = [("rank", "allocated", "reserved", "nvidia-smi", "sent a step" if result.steps else "sent", "")]
    for peak in shown:
        sizes = (peak.peak_allocated_bytes, peak.peak_reserved_bytes, peak.peak_total_bytes, peak.sent_bytes)
        allocated, reserved, total, sent = map(format_bytes, sizes)
        verdict = (peak.verdict if result.card is not None else "") if peak.peak_total_bytes else "nothing measured"
        rows.append((str(peak.rank), allocated, reserved, total, sent, verdict))
    _print(console, aligned(rows, right={0, 1, 2, 3, 4}))
    if len(ranks) > len(shown):
        _print(console, [f"... and {len(ranks) - len(shown)} more ranks that take no more; --json has them all."])


def communication_line(communication: Mapping[str, Communication], *, counts_steps: bool = True) -> str:
    """What one rank sends in each step, in one line; or in all that was seen of them, where none has ended.

    >>> gathers = Communication(calls=14, payload_bytes=4 << 20, sent_bytes=3 << 20)
    >>> communication_line({"all-gather": gathers})
    'Each step sends 3.00 MiB: all-gather 3.00 MiB'
    >>> communication_line({"all-gather": gathers}, counts_steps=False)
    '3.00 MiB were sent in all, and no optimizer step was counted: all-gather 3.00 MiB'
    """
    kinds = sorted(communication.items(), key=lambda item: -item[1].sent_bytes)
    parts = ", ".join(f"{kind} {format_bytes(each.sent_bytes)}" for kind, each in kinds if each.sent_bytes)
    sent = format_bytes(sent_bytes_of(communication))
    said = f"Each step sends {sent}" if counts_steps else f"{sent} were sent in all, and no optimizer step was counted"
    return f"{said}: {parts}" if parts else said


def _print(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        sentence(console, line)


def _unknowns(console: Console, unknowns: list[Unknown]) -> None:
    if not unknowns:
        return
    console.print()
    described = describe_unknowns(unknowns)
    lines = [f"  {line}" for line in described[:_MOST_UNKNOWNS_SHOWN]]
    if len(described) > _MOST_UNKNOWNS_SHOWN:
        lines.append(f"  ... and {len(described) - _MOST_UNKNOWNS_SHOWN} more; --json has them all.")
    _print(console, ["Not known on a virtual card:", *lines])


def describe_unknowns(unknowns: Iterable[Unknown]) -> list[str]:
    """A line for each, and one for all that a line of the program reads with one answer and without weight.

    A `torch.save` reads each of a model's tensors.
    """
    alike: dict[object, list[Unknown]] = {}
    for unknown in unknowns:
        is_alike = unknown.file and not unknown.decides_size
        key = (unknown.kind, unknown.file, unknown.line, unknown.answer) if is_alike else unknown
        alike.setdefault(key, []).append(unknown)
    return [describe_unknown(_together(each)) for each in alike.values()]


def _together(unknowns: list[Unknown]) -> Unknown:
    first, more = unknowns[0], len(unknowns) - 1
    if not more:
        return first
    count = sum(each.count for each in unknowns)
    return dataclasses.replace(first, what=f"{first.what}, and {more} more like it,", count=count)


def describe_unknown(unknown: Unknown) -> str:
    """One line for one thing that was not known, with its place in the program and what stood in for it."""
    times = f" ({unknown.count} times)" if unknown.count > 1 else ""
    place = f" at {as_seen_from_here(unknown.file)}:{unknown.line}" if unknown.file else ""
    weight = "can change the bytes" if unknown.decides_size else "does not change the bytes by itself"
    if unknown.decides_size and unknown.to_change:
        weight += f"; set it with {unknown.to_change}"
    is_sentence = unknown.decides_size and unknown.to_change
    source = f": {unknown.source}" if unknown.source else ""
    return f"{unknown.what}{place}{times}{': ' if is_sentence else ', taken as '}{unknown.answer}; {weight}{source}"

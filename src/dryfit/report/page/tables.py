"""The sections below the pictures: findings, modules, lines, tensors, steps, cached memory, numbers, changes, notes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from dryfit.analyse.footprint import Footprint, LineBytes, OwnerChange, StepFootprint, TensorBytes
from dryfit.report.findings import evidence_line
from dryfit.report.footprint import out_of_memory_line
from dryfit.report.page.header import share
from dryfit.report.page.markup import Html, bar, element, joined, owners_bar, size, swatch, table
from dryfit.report.source_lines import source_of
from dryfit.report.text import describe_unknowns
from dryfit.units import format_bytes

if TYPE_CHECKING:
    from dryfit.rehearse.result import Result

_MOST_AT_ONCE, _MOST_STEPS = 12, 200


def sections(footprint: Footprint, result: Result | None, short: Callable[[str], str]) -> dict[str, Html]:
    """All sections that have something to say, in the order of the page, by the name each is found by.

    `short` names a file for people.
    """
    numbers_words = "Each with the reason it differs from the one above it."
    found = {
        "findings": ("Findings", "", _findings(result, short)),
        "modules": ("Modules", "What each module and those inside it hold at the peak.", _modules()),
        "lines": ("Lines", "The program's own lines that made what the peak holds.", _lines(footprint, short)),
        "tensors": ("Tensors", "The largest single allocations at the peak.", _tensors(footprint, short)),
        "steps": ("Steps", "", _steps(footprint)),
        "cached": ("Cached and unused", footprint.cached.sentence, _cached(footprint)),
        "numbers": ("The numbers people compare", numbers_words, _numbers(footprint)),
        "changes": ("First step and steady step", "", _changes(footprint)),
        "oom": ("Out of memory", "", _out_of_memory(footprint)),
        "notes": ("Notes", "", _notes(footprint, result)),
    }
    return {name: _section(name, *parts) for name, parts in found.items() if parts[-1]}


def contents(names: Iterable[str]) -> Html:
    """The links to sections that people look for."""
    wanted = ("findings", "modules", "lines", "tensors", "steps", "numbers", "notes")
    return joined(element("a", name.title(), href=f"#{name}") for name in names if name in wanted)


def _section(name: str, title: str, words: str, content: Html | str) -> Html:
    return element(
        "section",
        element("h2", title, id=f"{name}-title"),
        element("p", words, class_="words") if words else "",
        content,
        id=name, aria_labelledby=f"{name}-title",
    )  # fmt: skip


def _findings(result: Result | None, short: Callable[[str], str]) -> Html | str:
    rows = [
        (
            element("code", finding.code),
            joined([_place(place.file, place.line, short), element("span", place.text.strip(), class_="source")])
            if (place := finding.place) is not None
            else "",
            joined([finding.claim, element("span", evidence_line(finding.evidence), class_="source")]),
            finding.advice,
        )
        for finding in (result.findings if result is not None else ())
    ]
    return table("What costs memory for nothing", ("Code", "Line", "What", "What to do"), rows) if rows else ""


def _modules() -> Html:
    """The tree's frame; the script fills it, and people open it."""
    headings = (
        ("Module", None),
        ("Holds", "number"),
        ("Itself", "number own"),
        ("Of the peak", "number share"),
        ("", "weights"),
    )
    head = element("tr", *(element("th", words, scope="col", class_=style) for words, style in headings), role="row")
    return element(
        "div",
        element(
            "table",
            element("caption", "Modules and what they hold at the peak", class_="unseen"),
            element("thead", head),
            element("tbody", id="tree"),
            role="treegrid", aria_label="Modules and what they hold at the peak", class_="tree",
        ),
        class_="scroll",
    )  # fmt: skip


def _lines(footprint: Footprint, short: Callable[[str], str]) -> Html | str:
    whole = footprint.peak.allocated_bytes
    rows = [
        (
            _line(line, short),
            size(line.size_bytes),
            share(line.size_bytes, whole),
            f"{line.blocks:,}",
            owners_bar(line.owners, whole),
        )
        for line in footprint.lines
    ]
    headings = ("Line", "Holds", "Of the peak", "Blocks", "Owners")
    return _foldable("Lines that hold memory at the peak", headings, rows, (1, 2, 3))


def _line(line: LineBytes, short: Callable[[str], str]) -> Html:
    source = source_of(line.file, line.line) if line.file else ""
    words = source or (f"in {line.function}" if line.function else "")
    place = _place(line.file, line.line, short) if line.file else element("code", "(no line known)")
    return joined([place, element("span", words, class_="source")])


def _place(file: str, line: int, short: Callable[[str], str]) -> Html:
    return element("code", f"{short(file)}:{line}", title=file)


def _tensors(footprint: Footprint, short: Callable[[str], str]) -> Html | str:
    rows = [
        (
            _tensor(tensor),
            size(tensor.size_bytes),
            tensor.owner,
            element("bdi", tensor.module),
            _place(tensor.file, tensor.line, short) if tensor.file else "",
            tensor.begin,
            tensor.end or "never",
        )
        for tensor in footprint.tensors
    ]
    headings = ("Tensor", "Size", "Owner", "Module", "Line", "Made", "Freed")
    return _foldable("Largest tensors at the peak", headings, rows, (1,))


def _tensor(tensor: TensorBytes) -> Html:
    """Its name, shape and type, as far as they are known."""
    shape = "" if tensor.shape is None else "×".join(map(str, tensor.shape)) or "scalar"
    typed = " ".join(part for part in (shape, tensor.dtype) if part)
    name = element("bdi", tensor.name or typed or "no name")
    return joined(
        [swatch(tensor.owner), name, element("span", typed, class_="source") if tensor.name and typed else ""]
    )


def _foldable(
    caption: str, headings: Sequence[str], rows: Sequence[Sequence[object]], numbers: Sequence[int]
) -> Html | str:
    """A table of the first rows, and one of the rest that opens."""
    if not rows:
        return ""
    first, rest = rows[:_MOST_AT_ONCE], rows[_MOST_AT_ONCE:]
    shown = table(caption, headings, first, numbers)
    if not rest:
        return shown
    folded = element(
        "details", element("summary", f"{len(rest):,} more"), table(f"{caption}, continued", headings, rest, numbers)
    )
    return joined([shown, folded])


def _steps(footprint: Footprint) -> Html | str:
    if not footprint.steps:
        return ""
    whole, peak_step = footprint.peak.allocated_bytes, footprint.peak.step
    alike = [list(group) for _, group in groupby(footprint.steps, key=_figures)]
    left_out = range(_MOST_STEPS // 2, len(alike) - _MOST_STEPS // 2)
    rows = [
        (
            _steps_alike(group, peak_step),
            *map(size, _figures(group[0])[:2]),
            group[0].peak.phase if group[0].step else "",
            *map(size, _figures(group[0])[2:5]),
            owners_bar(group[0].peak.owners, whole),
        )
        for place, group in enumerate(alike)
        if place not in left_out or any(step.step == peak_step for step in group)
    ]
    words = f"{len(alike) - len(rows):,} rows from the middle are left out; --json has every step."
    headings = (
        "Step",
        "Peak",
        "Reserved at most",
        "Peak in",
        "Fixed",
        "Grows with batch",
        "Held after it",
        "Owners at its peak",
    )
    shown = _foldable("Peaks of each step", headings, rows, (1, 2, 4, 5, 6))
    return joined([shown, element("p", words, class_="words") if len(rows) < len(alike) else "", _phases(footprint)])


def _figures(step: StepFootprint) -> tuple[Any, ...]:
    """What a row shows of a step; neighbours with the same share one."""
    peak = step.peak
    reserved_bytes = max((phase.peak_reserved_bytes for phase in step.phases), default=peak.reserved_bytes)
    return (
        peak.allocated_bytes, reserved_bytes, peak.fixed_bytes, peak.grows_with_batch_bytes, step.end_allocated_bytes,
        peak.phase, peak.owners, bool(step.step),
    )  # fmt: skip


def _steps_alike(steps: Sequence[StepFootprint], peak_step: int) -> Html:
    first, last = steps[0].step, steps[-1].step
    words = f"step {first}" if first == last else f"steps {first:,} to {last:,}"
    is_peak = any(step.step == peak_step for step in steps)
    return joined([words if first else "setup", element("span", "the peak", class_="tag") if is_peak else ""], " ")


def _phases(footprint: Footprint) -> Html | str:
    step = next((step for step in footprint.steps if step.step == footprint.peak.step), None)
    if step is None or len(step.phases) < 2:
        return ""
    rows = [
        (phase.phase, size(phase.peak_allocated_bytes), size(phase.peak_reserved_bytes),
         owners_bar(phase.owners, footprint.peak.allocated_bytes))
        for phase in step.phases
    ]  # fmt: skip
    name = f"step {step.step}" if step.step else "the setup"
    headings = ("Phase", "Peak allocated", "Reserved at most", "Owners at its peak")
    return joined([element("h3", f"Phases of {name}"), table(f"Phases of {name}", headings, rows, (1, 2))])


def _cached(footprint: Footprint) -> Html | str:
    cached = footprint.cached
    parts = [
        ("allocated", "allocated by tensors", cached.allocated_bytes),
        ("waiting", "freed, waiting for another stream", cached.awaiting_bytes),
        ("split", "holes in segments that tensors share", cached.split_bytes),
        ("whole", "whole segments without a tensor", cached.whole_segments_bytes),
    ]
    shown = [(style, words, size_bytes) for style, words, size_bytes in parts if size_bytes]
    if not cached.reserved_bytes:
        return ""
    label = "Reserved memory at its peak: " + ", ".join(f"{words} {format_bytes(held)}" for _, words, held in shown)
    legend = [
        element("li", element("i", class_=f"swatch part-{style}", aria_hidden="true"), words, " ", size(held))
        for style, words, held in shown
    ]
    return joined(
        [
            bar(((style, held) for style, _, held in shown), cached.reserved_bytes, label),
            element("ul", *legend, class_="legend"),
            element(
                "p",
                f"The largest hole is {format_bytes(cached.largest_hole_bytes)}; the largest request of the run was "
                f"{format_bytes(cached.largest_request_bytes)}.",
            ),
        ]
    )


def _numbers(footprint: Footprint) -> Html | str:
    rows = [
        (number.name, size(number.size_bytes), element("span", f"{number.size_bytes:,}", class_="exact"), number.why)
        for number in footprint.numbers
    ]
    return table("The numbers people compare", ("Number", "Size", "Bytes", "Why"), rows, (1, 2)) if rows else ""


def _changes(footprint: Footprint) -> Html | str:
    growth, parts = footprint.growth, []
    if footprint.first_against_steady:
        caption = "Owners at the peaks of the first and the last whole step"
        parts.append(_change_table(caption, ("First step", "Steady step"), footprint.first_against_steady))
    if growth is not None:
        by_itself = f"Each step holds {format_bytes(growth.bytes_per_step)} more than the one before."
        parts.append(element("p", growth.sentence or by_itself, class_="words"))
        if growth.owners:
            names = (f"After step {growth.first_step}", f"After step {growth.last_step}")
            parts.append(_change_table("What grew from step to step", names, growth.owners))
    return joined(parts) if parts else ""


def _change_table(caption: str, names: tuple[str, str], changes: Sequence[OwnerChange]) -> Html:
    rows = [
        (
            joined([swatch(change.owner), change.owner]),
            size(change.before_bytes),
            size(change.after_bytes),
            _signed(change.after_bytes - change.before_bytes),
        )
        for change in changes
    ]
    return table(caption, ("Owner", *names, "Change"), rows, (1, 2, 3))


def _signed(size_bytes: int) -> str:
    return f"+{format_bytes(size_bytes)}" if size_bytes > 0 else format_bytes(size_bytes) if size_bytes else "–"


def _out_of_memory(footprint: Footprint) -> Html | str:
    oom = footprint.out_of_memory
    if oom is None:
        return ""
    return joined([element("p", out_of_memory_line(oom), class_="alarm"), element("p", oom.sentence)])


def _notes(footprint: Footprint, result: Result | None) -> Html | str:
    notes = list(dict.fromkeys([*footprint.notes, *(result.notes if result is not None else ())]))
    unknowns = describe_unknowns(result.unknowns) if result is not None else []
    parts = [element("ul", *(element("li", note) for note in notes), class_="plain")] if notes else []
    if unknowns:
        parts.append(element("h3", "Not known on a virtual card"))
        parts.append(element("ul", *(element("li", unknown) for unknown in unknowns), class_="plain"))
    return joined(parts) if parts else ""

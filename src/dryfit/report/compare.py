"""Two footprints in the terminal: how the peak changed, and what grew by owner, module, line and tensor."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from dryfit.analyse.compare import Batch, Comparison, LineChange, ModuleChange, Side, TensorChange
from dryfit.recording.model import MADE_OF_A_BATCH, REMAINDER
from dryfit.report.alike import same_in_each
from dryfit.report.footprint import OUTSIDE_MODULES, moment
from dryfit.report.source_lines import place_of, source_of
from dryfit.report.terminal import open_console, sentence, table
from dryfit.units import format_bytes

if TYPE_CHECKING:
    from rich.console import Console

_MOST_ROWS = 8
_FIRST, _SECOND = "A", "B"
_SIZES = (_FIRST, _SECOND, "change", "tensor in A", "in B")


def print_comparison(comparison: Comparison, file: TextIO | None = None) -> None:
    """Print what grew from the first to the second; colour and width as the terminal has them.

    print_comparison(compare(before, after))
    """
    console = open_console(file)
    sentence(console, change_line(comparison), style="bold")
    for letter, side in ((_FIRST, comparison.before), (_SECOND, comparison.after)):
        sentence(console, f"{letter}: {_side_in_words(side)}")
    _owners(console, comparison)
    if comparison.batch is not None:
        console.print()
        for line in batch_lines(comparison, comparison.batch):
            sentence(console, line)
    _modules(console, comparison)
    _lines(console, comparison)
    _tensors(console, comparison)


def change_line(comparison: Comparison) -> str:
    """How the peak changed, in one line.

    PEAK 6.27 GiB -> 11.36 GiB allocated by tensors: 5.09 GiB more, +81%
    """
    before, after = comparison.before.allocated_bytes, comparison.after.allocated_bytes
    both = f"PEAK {format_bytes(before)} -> {format_bytes(after)} allocated by tensors"
    if before == after:
        return f"{both}: the same"
    percent = f", {100 * (after - before) / before:+.0f}%" if before else ""
    return f"{both}: {format_bytes(abs(after - before))} {'more' if after > before else 'less'}{percent}"


def batch_lines(comparison: Comparison, batch: Batch) -> list[str]:
    """What the batch has to do with it, in sentences."""
    each, fixed = format_bytes(batch.bytes_per_sample), format_bytes(max(0, batch.empty_batch_bytes))
    lines = [
        f"The batch is {batch.before} in A and {batch.after} in B. On a straight line through the two, each further "
        f"sample takes {each} at the peak, and {fixed} are there whatever the batch."
    ]
    phases = comparison.before.phase, comparison.after.phase
    if phases[0] != phases[1]:
        lines[0] += f" The peaks are of two kinds, {phases[0]} and {phases[1]}: the line is a rough one."
    grown = [
        f"{change.owner} {format_bytes(change.before_bytes)} -> {format_bytes(change.after_bytes)}"
        for change in sorted(comparison.owners, key=lambda one: one.before_bytes - one.after_bytes)
        if (change.after_bytes - change.before_bytes) * (batch.after - batch.before) > 0
    ]
    if grown:
        lines.append(f"What goes with the batch: {', '.join(grown)}.")
    others = [
        change.owner
        for change in comparison.owners
        if change.after_bytes != change.before_bytes and change.owner not in (*MADE_OF_A_BATCH, REMAINDER)
    ]
    if others:
        lines.append(f"Not of the batch by its kind, and changed too: {', '.join(others)}.")
    return lines


def _side_in_words(side: Side) -> str:
    program = " ".join(map(str, side.about.get("program") or ())) or f"a {side.source}"
    when = moment(side.step, side.phase)
    where = f" in {when}" if when else ""
    allocated, reserved = format_bytes(side.allocated_bytes), format_bytes(side.reserved_bytes)
    return f"{program}; {allocated} allocated{where}, {reserved} reserved"


def _figures(before_bytes: int, after_bytes: int) -> tuple[str, str, str]:
    change = after_bytes - before_bytes
    return (
        format_bytes(before_bytes),
        format_bytes(after_bytes),
        f"{'+' if change > 0 else ''}{format_bytes(change)}" if change else "",
    )


def _owners(console: Console, comparison: Comparison) -> None:
    before, after = comparison.before, comparison.after
    ordered = sorted(comparison.owners, key=lambda one: -abs(one.after_bytes - one.before_bytes))
    rows = [(one.owner, *_figures(one.before_bytes, one.after_bytes)) for one in ordered]
    rows.append(("all", *_figures(before.allocated_bytes, after.allocated_bytes)))
    parts = (
        ("of it, made of the batch", before.grows_with_batch_bytes, after.grows_with_batch_bytes),
        ("of it, logits and loss", before.logits_and_loss_bytes, after.logits_and_loss_bytes),
    )
    rows += [(name, *_figures(first, second)) for name, first, second in parts if first or second]
    table(console, ("owner at the peak", _FIRST, _SECOND, "change"), rows, right={1, 2, 3})


def _modules(console: Console, comparison: Comparison) -> None:
    """Print modules that differ only by a number as one, each byte once, with the innermost module."""
    families: dict[tuple[str, str], list[ModuleChange]] = defaultdict(list)
    for change in comparison.modules:
        if change.own_before_bytes != change.own_after_bytes:
            families[same_in_each(change.path), change.kind].append(change)
    rows = []
    for (path, kind), members in families.items():
        sizes = sum(one.own_before_bytes for one in members), sum(one.own_after_bytes for one in members)
        name = (f"{path} ({len(members)})" if len(members) > 1 else members[0].path) or OUTSIDE_MODULES
        rows.append((sizes[0] - sizes[1], (*_figures(*sizes), name, kind)))
    rows.sort(key=lambda row: -abs(row[0]))
    head = (_FIRST, _SECOND, "change", "module, without those inside it", "class")
    _print_changed(console, head, [row for _, row in rows])


def _lines(console: Console, comparison: Comparison) -> None:
    rows = [
        (*_figures(one.before_bytes, one.after_bytes), _line_in_both(one), source_of(one.file, one.after_line or 0))
        for one in comparison.lines
        if one.before_bytes != one.after_bytes
    ]
    _print_changed(console, (_FIRST, _SECOND, "change", "line", ""), rows)


def _line_in_both(change: LineChange) -> str:
    if change.after_line is None:
        return f"{place_of(change.file, change.before_line or 0)} (A only)"
    moved = f" (A: {change.before_line})" if change.before_line not in (None, change.after_line) else ""
    return f"{place_of(change.file, change.after_line)}{moved}"


def _tensors(console: Console, comparison: Comparison) -> None:
    families: dict[tuple[object, ...], list[TensorChange]] = defaultdict(list)
    for change in comparison.tensors:
        if (change.before_bytes, change.before_count) != (change.after_bytes, change.after_count):
            sizes, shapes = (change.before_bytes, change.after_bytes), (change.before_shape, change.after_shape)
            families[change.owner, same_in_each(_whose(change)), change.dtype, sizes, shapes].append(change)
    rows = []
    for members in families.values():
        one = members[0]
        names = {_whose(each) for each in members}
        name = names.pop() if len(names) == 1 else same_in_each(_whose(one))
        before = sum(each.before_count for each in members)
        after = sum(each.after_count for each in members)
        weight = abs(one.after_bytes * after - one.before_bytes * before)
        plus = "+" if any(each.may_be_more for each in members) else ""
        both = _times(before, plus, one.before_bytes), _times(after, plus, one.after_bytes)
        rows.append((weight, (*both, one.owner, _shapes(one), name)))
    rows.sort(key=lambda row: -row[0])
    head = ("tensor in A", "in B", "owner", "shape", "name or place")
    _print_changed(console, head, [row for _, row in rows])


def _whose(change: TensorChange) -> str:
    return change.name or change.module or place_of(change.file, change.line)


def _times(count: int, plus: str, size_bytes: int) -> str:
    times = f"{count}{plus} x " if count > 1 else ""
    return f"{times}{format_bytes(size_bytes)}" if count else "none so large"


def _shapes(change: TensorChange) -> str:
    shapes = [f"[{', '.join(map(str, shape))}]" for shape in (change.before_shape, change.after_shape) if shape]
    return f"{' -> '.join(dict.fromkeys(shapes))} {change.dtype}".strip()


def _print_changed(console: Console, head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    table(console, head, rows[:_MOST_ROWS], right=[place for place, title in enumerate(head) if title in _SIZES])
    if len(rows) > _MOST_ROWS:
        sentence(console, f"... and {len(rows) - _MOST_ROWS} more; --json has them all.")

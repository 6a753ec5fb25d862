"""A comparison in the terminal: how both runs came out, the peaks, then steps and phases, and the row to send."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from dryfit.report.terminal import open_console, sentence, table
from dryfit.units import format_bytes
from dryfit.verifying.comparison import OUT_OF_MEMORY, RAN, Line, alike_until, by_phase, by_step, peaks
from dryfit.verifying.real_card import described
from dryfit.verifying.row import Row, markdown_table, off_in_words
from dryfit.verifying.verify import Verified

_MOST_STEPS_SHOWN = 8
_HEAD = (
    "", "allocated: card", "dryfit", "off", "reserved: card", "dryfit", "off", "total: card", "dryfit", "off",
)  # fmt: skip


def print_verified(verified: Verified, file: TextIO | None = None) -> None:
    """Print a comparison."""
    console = open_console(file)
    row = verified.row
    sentence(console, verdict_line(verified), style="bold green" if verified.exit_code == 0 else "bold yellow")
    sentence(console, f"{described(row.card)}; rehearsed on {_twin(row)}; torch {row.versions.get('torch', '?')}.")
    steps = by_step(row.real, row.virtual)
    lines = [peaks(row.real, row.virtual), *steps[: _MOST_STEPS_SHOWN + 1], *by_phase(row.real, row.virtual)[1:]]
    if row.real.figures or row.virtual.figures:
        table(console, _HEAD, [_cells(line) for line in lines], right=set(range(1, len(_HEAD))))
    if len(steps) > _MOST_STEPS_SHOWN + 1:
        sentence(console, f"... and {len(steps) - _MOST_STEPS_SHOWN - 1} more steps; the row has them.")
    console.print()
    for line in _sentences(verified):
        sentence(console, line)
    console.print()
    sentence(console, "As a row:", style="bold")
    for text in markdown_table([row]).splitlines():
        sentence(console, text)


def verdict_line(verified: Verified) -> str:
    """The answer in one line.

    ALIKE on NVIDIA L4: allocated and reserved memory are the same to the byte; the total is off by -1.2000%
    """
    row = verified.row
    name = row.card.name
    if row.real.outcome != row.virtual.outcome:
        came_out = f"{_came_out(row.real.outcome)} for real and {_came_out(row.virtual.outcome)} virtually"
        return f"DIFFERENT on {name}: the program {came_out}"
    if row.real.outcome not in (RAN, OUT_OF_MEMORY):
        return f"NOT COMPARED on {name}: the program {_came_out(row.real.outcome)} both for real and virtually"
    line = peaks(row.real, row.virtual)
    if line.allocated.off_bytes == 0 and line.reserved.off_bytes == 0:
        said = "allocated and reserved memory are the same to the byte"
    else:
        allocated, reserved = off_in_words(line.allocated), off_in_words(line.reserved)
        said = f"allocated memory is off by {allocated}, reserved memory by {reserved}"
    off_bytes = line.total.off_bytes
    total = "not known" if off_bytes is None else f"off by {off_in_words(line.total)}" if off_bytes else "the same"
    both = "" if row.real.outcome == RAN else "both runs ran out of memory; "
    return f"ALIKE on {name}: {both}{said}; the total is {total}"


def _sentences(verified: Verified) -> list[str]:
    row = verified.row
    found = [f"For real: {verified.real_ending.sentence}"]
    if verified.real_ending.sentence != verified.virtual_ending.sentence:
        found.append(f"Virtually: {verified.virtual_ending.sentence}")
    for where, ending in (("For real", verified.real_ending), ("Virtually", verified.virtual_ending)):
        if ending.how == "out of memory" and ending.error_message:
            found.append(f"{where}, PyTorch's own error: {ending.error_message.splitlines()[0]}")
    same = alike_until(row.real, row.virtual)
    if same < min(len(row.real.figures), len(row.virtual.figures)):
        first = row.real.figures[same]
        where = f"step {first.step}, {first.phase}" if first.step else first.phase
        found.append(f"Allocated or reserved memory first differs in {where}.")
    low, high = (row.virtual_total_range.get(name) for name in ("low", "high"))
    total = row.real.peak_total_bytes
    if low and high and total is not None and row.real.outcome == row.virtual.outcome:
        is_within = "within" if low <= total <= high else "outside"
        found.append(
            f"The card's total, {format_bytes(total)}, is {is_within} what the rehearsal expects, "
            f"{format_bytes(low)} to {format_bytes(high)}."
        )
    if row.twin == "by hand":
        found.append(
            f"The catalogue has no {row.card.name} with {row.card.sm_count} multiprocessors, so it was rehearsed as "
            "the driver describes it."
        )
    if row.card.is_virtual:
        found.append("The card was a virtual one in place of a real one, so this row says nothing of real cards.")
    return [*found, *row.notes]


def _twin(row: Row) -> str:
    return "a card made by hand" if row.twin == "by hand" else row.twin


def _came_out(outcome: str) -> str:
    return {RAN: "ran", OUT_OF_MEMORY: "ran out of memory", "failed": "failed"}.get(outcome, "was stopped")


def _cells(line: Line) -> Sequence[str]:
    cells = [line.name]
    for pair in (line.allocated, line.reserved, line.total):
        known = pair.real_bytes is not None or pair.virtual_bytes is not None
        cells += [_size(pair.real_bytes), _size(pair.virtual_bytes), off_in_words(pair)] if known else ["", "", ""]
    return cells


def _size(size_bytes: int | None) -> str:
    return "-" if size_bytes is None else format_bytes(size_bytes)

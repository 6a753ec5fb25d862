"""A sweep's table for a person: how many fit, a line for each cell, errors once each."""

from __future__ import annotations

import io
from collections import Counter
from html import escape
from typing import TextIO

from dryfit.rehearse.result import DOES_NOT_FIT, FITS
from dryfit.report.terminal import open_console, sentence, table
from dryfit.sweeping.found import Sweep
from dryfit.sweeping.row import Outcome
from dryfit.units import format_bytes

_MOST_ROWS = 60
_FIGURES = ("answer", "allocated", "reserved", "nvidia-smi shows", "sent per step", "steps", "seconds")


def print_sweep(sweep: Sweep, file: TextIO | None = None) -> None:
    """Print a sweep; what is the same in all cells has no column."""
    console = open_console(file)
    sentence(console, headline(sweep), style="bold")
    rows = sweep.table()
    names = [name for name in ("program", *sweep.settings, "gpu", "world", "with") if _varies(rows, name)]
    body = [
        [*(_shown(row[name]) for name in names), *_figures(each.outcome)]
        for row, each in list(zip(rows, sweep.rows, strict=True))[:_MOST_ROWS]
    ]
    numbers = {at for at, name in enumerate(names) if all(isinstance(row[name], (int, float)) for row in rows)}
    figures = set(range(len(names) + 1, len(names) + len(_FIGURES)))
    table(console, [*names, *_FIGURES], body, right=numbers | figures)
    if len(rows) > _MOST_ROWS:
        sentence(console, f"... and {len(rows) - _MOST_ROWS} more; -o table.csv writes all of them.")
    errors = Counter((each.outcome.error, each.outcome.error_sentence) for each in sweep.rows if each.outcome.error)
    table(
        console,
        ("error", "cells", "what happened"),
        [(kind, str(count), " ".join(said.split())) for (kind, said), count in errors.most_common()],
        right={1},
        wrap_last=True,
    )
    console.print()
    for line in _notes(sweep):
        sentence(console, line)


def html(sweep: Sweep) -> str:
    """The same text for a notebook."""
    out = io.StringIO()
    print_sweep(sweep, file=out)
    return f"<pre>{escape(out.getvalue())}</pre>"


def headline(sweep: Sweep) -> str:
    """The answer in one line: SWEPT 8 cells: 5 fit, 2 do not fit, 1 failed."""
    verdicts = Counter(each.outcome.verdict for each in sweep.rows if not each.outcome.error)
    without_card = sum(each.gpu is None and not each.outcome.error for each in sweep.rows)
    counts = (
        (verdicts[FITS], "fit" if verdicts[FITS] != 1 else "fits"),
        (verdicts[DOES_NOT_FIT], "do not fit" if verdicts[DOES_NOT_FIT] != 1 else "does not fit"),
        (without_card, "measured without a card"),
        (verdicts["unknown"] - without_card, "too close to call"),
        (sweep.failed, "failed"),
    )
    said = ", ".join(f"{count} {words}" for count, words in counts if count > 0)
    return f"SWEPT {len(sweep.rows)} cell{'' if len(sweep.rows) == 1 else 's'}: {said}"


def _notes(sweep: Sweep) -> list[str]:
    kept = f", {sweep.kept} taken from {sweep.rows_file}" if sweep.kept else ""
    notes = [f"{sweep.rehearsed} rehearsed in {sweep.wall_seconds:.1f} s{kept}."]
    if sweep.failed and sweep.rows_file:
        notes.append("--retry rehearses those that failed.")
    versions = sorted({each.outcome.torch for each in sweep.rows if each.outcome.torch})
    if len(versions) > 1:
        notes.append(f"Workers had several versions of torch ({', '.join(versions)}), whose figures may differ.")
    return notes


def _figures(outcome: Outcome) -> list[str]:
    if outcome.error:
        return [f"failed: {outcome.error}", *[""] * (len(_FIGURES) - 1)]
    answer = {"unknown": "too close to call"}.get(outcome.verdict, outcome.verdict)
    if outcome.smallest_card is not None:
        answer = f"{outcome.smallest_card} holds it"
    sizes = (outcome.peak_allocated_bytes, outcome.peak_reserved_bytes, outcome.peak_total_bytes)
    sent = format_bytes(outcome.sent_bytes) if outcome.sent_bytes else ""
    return [answer, *(format_bytes(size or 0) for size in sizes), sent, str(outcome.steps), f"{outcome.seconds:.1f}"]


def _varies(rows: list[dict[str, object]], name: str) -> bool:
    return len({row[name] for row in rows}) > 1


def _shown(value: object) -> str:
    return "" if value is None else str(value)

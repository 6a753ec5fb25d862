"""A result or a footprint in a notebook: one fragment of HTML without scripts, as Jupyter shows it."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from dryfit.analyse.footprint import Footprint, OwnerBytes
from dryfit.recording.model import OWNERS
from dryfit.rehearse.result import Result
from dryfit.report.findings import lines_of
from dryfit.report.footprint import heaviest_first, out_of_memory_line, peak_line, share_of
from dryfit.report.text import verdict_line
from dryfit.units import format_bytes

# In the order of OWNERS; of middle lightness, so that they stand out on a light and on a dark page.
_COLOURS = (
    "#4477cc", "#9966cc", "#2299aa", "#6699dd", "#7788aa", "#44aa66",
    "#dd8833", "#ccaa33", "#888888", "#cc6699", "#aaaaaa", "#cc4444",
)  # fmt: skip
_COLOUR_OF = dict(zip(OWNERS, _COLOURS, strict=True))
_BOX = "font:13px/1.5 system-ui,sans-serif;color-scheme:light dark;max-width:60em"
_CELL = "padding:1px 12px 1px 0;text-align:left;border:0;background:none"
_NUMBER_CELL = f"{_CELL};text-align:right;font-variant-numeric:tabular-nums"


def html(shown: Result | Footprint) -> str:
    """The verdict or the peak, the owners at the peak as a bar and a table, and what there is to note.

        IPython.display.HTML(html(dryfit.run(["train.py"])))

    Text is in the page's own colour, so that it is readable in light and dark notebooks.
    """
    footprint = shown if isinstance(shown, Footprint) else shown.footprint
    parts = []
    if isinstance(shown, Result):
        parts.append(_line(verdict_line(shown), bold=True))
    if footprint is not None:
        parts.append(_line(peak_line(footprint), bold=not parts))
        if footprint.out_of_memory is not None:
            parts.append(_line(out_of_memory_line(footprint.out_of_memory), bold=True))
        owners = heaviest_first(footprint.peak.owners)
        if owners:
            parts += [_bar(owners, footprint.peak.allocated_bytes), _table(owners, footprint.peak.allocated_bytes)]
    if isinstance(shown, Result):
        parts += [_line(" ".join(lines_of(finding)[:2])) for finding in shown.findings]
    notes = dict.fromkeys(
        [*(footprint.notes if footprint else ()), *(shown.notes if isinstance(shown, Result) else ())]
    )
    parts += [_line(note) for note in notes]
    return f'<div style="{_BOX}">{"".join(parts)}</div>'


def _line(text: str, *, bold: bool = False) -> str:
    weight = ";font-weight:600" if bold else ""
    return f'<p style="margin:4px 0{weight}">{escape(text)}</p>'


def _bar(owners: Iterable[OwnerBytes], total_bytes: int) -> str:
    pieces = "".join(
        f'<span style="background:{_colour(one.owner)};width:{100 * one.size_bytes / max(total_bytes, 1):.3f}%" '
        f'title="{escape(one.owner)} {format_bytes(one.size_bytes)}"></span>'
        for one in owners
    )
    return f'<div aria-hidden="true" style="display:flex;height:18px;margin:6px 0">{pieces}</div>'


def _table(owners: Iterable[OwnerBytes], total_bytes: int) -> str:
    head = "".join(
        f'<th scope="col" style="{style};font-weight:600">{title}</th>'
        for title, style in (
            ("owner at the peak", _CELL),
            ("bytes", _NUMBER_CELL),
            ("share", _NUMBER_CELL),
            ("allocations", _NUMBER_CELL),
        )
    )
    rows = "".join(_row(one, total_bytes) for one in owners)
    return f'<table style="border-collapse:collapse;color:inherit;margin:0"><tr>{head}</tr>{rows}</table>'


def _row(one: OwnerBytes, total_bytes: int) -> str:
    swatch = f'<span style="display:inline-block;width:10px;height:10px;background:{_colour(one.owner)}"></span>'
    numbers = (format_bytes(one.size_bytes), share_of(one.size_bytes, total_bytes), str(one.blocks))
    cells = "".join(f'<td style="{_NUMBER_CELL}">{escape(number)}</td>' for number in numbers)
    return f'<tr style="background:none"><td style="{_CELL}">{swatch} {escape(one.owner)}</td>{cells}</tr>'


def _colour(owner: str) -> str:
    return _COLOUR_OF.get(owner, "#cc4444")

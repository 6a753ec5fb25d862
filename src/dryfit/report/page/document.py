"""Puts the page together: template, style and scripts of `assets/`, the sections, and the packed recording."""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from dryfit.analyse.analysis import Analysis
from dryfit.report.footprint import moment
from dryfit.report.page.header import header
from dryfit.report.page.markup import element, joined, text
from dryfit.report.page.names import short_names
from dryfit.report.page.payload import payload
from dryfit.report.page.tables import contents, sections
from dryfit.units import format_bytes
from dryfit.whole_files import whole_file

if TYPE_CHECKING:
    from dryfit.rehearse.result import Result

_STYLES = ("base.css", "charts.css", "tables.css")
# In this order: each uses only what stands before it, but for what runs once all is there.
_SCRIPTS = (
    "format.js", "unpack.js", "trace.js", "series.js", "axis.js", "view.js", "theme.js", "elements.js", "blocks.js",
    "chart.js", "strips.js", "timeline.js", "blockmap.js", "gestures.js", "inspector.js", "tree.js", "phases.js",
    "main.js",
)  # fmt: skip

_POLICY = "default-src 'none'; script-src '{script}'; style-src '{style}'; base-uri 'none'; form-action 'none'"


def page(analysis: Analysis, *, title: str = "", result: Result | None = None) -> str:
    """One HTML file that shows who owns the peak; it needs no network and no other file.

        text = page(analyse(open_recording("run.dryfit")))

    `title` is the heading where there is no `result` with its verdict; by itself it names the peak.
    What a recording holds is shown as text and never read as HTML; the page's own policy forbids every request and
    every script but its own. Equal recordings give equal pages, as far as the source files that they name, whose
    lines are quoted, are the same too.
    """
    footprint = analysis.footprint
    peak = footprint.peak
    where = moment(peak.step, peak.phase) if footprint.steps else ""
    name = title or f"Peak of {format_bytes(peak.allocated_bytes)}{f' in {where}' if where else ''}"
    packed, below = payload(analysis), sections(footprint, result, short_names(analysis.recording))
    style, script = _asset(_STYLES), f'"use strict";\n(() => {{\n{_asset(_SCRIPTS)}}})();\n'
    return Template(_asset(("page.html",))).substitute(
        policy=_POLICY.format(script=_hash(script), style=_hash(style)),
        title=text(f"{name} · dryfit"),
        style=style,
        script=script,
        header=header(footprint, title, result),
        picture_data=_picture_data(analysis),
        peak_label=element(
            "button", "peak ", element("strong", format_bytes(peak.allocated_bytes)),
            type="button", id="peak-label", data_bytes=peak.allocated_bytes, data_event=peak.event,
            title=f"{peak.allocated_bytes:,} bytes after event {peak.event:,}", hidden="",
        ),
        thinned=element("p", packed.thinned, class_="thinned", id="thinned") if packed.thinned else "",
        contents=contents(below),
        sections=joined(below.values()),
        data=packed.text,
    )  # fmt: skip


def write_page(analysis: Analysis, path: str | Path, *, title: str = "", result: Result | None = None) -> None:
    """Write `page` as a file.

        write_page(analyse(open_recording("run.dryfit")), "run.html")

    Raises:
        UsageError: the file cannot be written.
    """
    content = page(analysis, title=title, result=result)
    with whole_file(path, "page") as file:
        file.write(content.encode("utf-8"))


def _picture_data(analysis: Analysis) -> str:
    """What the pictures need beside the recording, as attributes: the peak, and the card's limit where it has one."""
    peak, card = analysis.footprint.peak, analysis.footprint.about.get("card")
    data: dict[str, object] = {"data-peak-event": peak.event, "data-peak-bytes": peak.allocated_bytes}
    if isinstance(card, Mapping) and card.get("key") != "unlimited" and isinstance(card.get("usable_bytes"), int):
        data |= {
            "data-limit-bytes": card["usable_bytes"],
            "data-limit-name": f"usable on {card.get('name', 'the card')}",
        }
    return " ".join(f'{name}="{text(value)}"' for name, value in data.items())


@functools.cache
def _asset(names: tuple[str, ...]) -> str:
    folder = files("dryfit.report.page") / "assets"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


def _hash(source: str) -> str:
    digest = hashlib.sha256(source.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"

"""The fragment a notebook shows: well-formed, without scripts, everything escaped."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ElementTree

from dryfit.rehearse.result import Ending
from dryfit.report.notebook import html

from ..results import PLAIN_RESULT
from . import footprints

GIB = 1 << 30
RESULT = dataclasses.replace(
    PLAIN_RESULT,
    peak_allocated_bytes=8 * GIB,
    peak_reserved_bytes=9 * GIB,
    peak_total_bytes=10 * GIB,
    peak_total_range_bytes={"low": 10 * GIB, "expected": 10 * GIB, "high": 10 * GIB},
    peak_step=2,
    peak_phase="backward",
    steps=4,
    fits_on=["l4"],
    ending=Ending(how="steady", sentence="Stopped."),
)


def parsed(fragment: str) -> ElementTree.Element:
    return ElementTree.fromstring(fragment)


def test_a_footprint_shows_its_peak_its_owners_and_its_notes() -> None:
    root = parsed(html(footprints.out_of_memory()))
    words = "".join(root.itertext())
    assert words.startswith("PEAK 6.27 GiB allocated by tensors in step 2, backward")
    assert "OUT OF MEMORY in step 2, backward: 1.54 GiB asked for" in words
    assert words.endswith("3 allocations are not attributed.")
    rows = [["".join(cell.itertext()).strip() for cell in row] for row in root.iter("tr")]
    assert rows[:2] == [
        ["owner at the peak", "bytes", "share", "allocations"],
        ["saved activation", "3.55 GiB", "57%", "63"],
    ]
    assert len(rows) == 1 + len(footprints.gpt2().peak.owners)


def test_the_bar_is_filled_by_the_owners() -> None:
    root = parsed(html(footprints.gpt2()))
    widths = [float(span.get("style", "").split("width:")[1].rstrip("%")) for span in root.iterfind("./div/span")]
    assert abs(sum(widths) - 100) < 0.05
    assert widths == sorted(widths, reverse=True)


def test_both_are_shown_as_a_cell_s_last_value() -> None:
    assert footprints.gpt2()._repr_html_() == html(footprints.gpt2())
    assert RESULT._repr_html_() == html(RESULT)


def test_a_file_may_say_that_the_peak_is_nothing() -> None:
    full = footprints.gpt2()
    nothing = dataclasses.replace(full, peak=dataclasses.replace(full.peak, allocated_bytes=0))
    assert "".join(parsed(html(nothing)).itertext()).startswith("PEAK 0 B allocated")


def test_a_result_shows_its_verdict_and_the_footprint_if_it_has_one() -> None:
    words = "".join(parsed(html(RESULT)).itertext())
    assert words == "NEEDS 9.00 GiB reserved by PyTorch; fits on l4"
    whole = dataclasses.replace(RESULT, notes=["A note."], footprint=footprints.gpt2())
    words = "".join(parsed(html(whole)).itertext())
    assert words.startswith("NEEDS 9.00 GiB reserved by PyTorch; fits on l4PEAK 6.27 GiB")
    assert words.endswith("3 allocations are not attributed.A note.")


def test_words_of_a_program_are_text_only() -> None:
    evil = '<img src=x onerror="alert(1)">&'
    full = footprints.gpt2()
    owners = (dataclasses.replace(full.peak.owners[0], owner=evil),)
    changed = dataclasses.replace(full, peak=dataclasses.replace(full.peak, owners=owners, phase=evil), notes=(evil,))
    root = parsed(html(changed))
    assert {element.tag for element in root.iter()} == {"div", "p", "span", "table", "tr", "td", "th"}
    assert "".join(root.itertext()).count(evil) == 3


def test_nothing_is_loaded_and_the_page_s_own_colour_is_used() -> None:
    fragment = html(footprints.gpt2())
    assert not any(word in fragment for word in ("<script", "http", "url(", "color:#", "<style"))
    assert len(fragment) < 8000

"""What is in the page's file: the figures, its policy, what it carries and what it leaves out."""

from __future__ import annotations

import base64
import dataclasses
import doctest
import gzip
import hashlib
import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from dryfit.analyse.analysis import Analysis
from dryfit.analyse.footprint import OwnerBytes
from dryfit.errors import UsageError
from dryfit.recording.model import SEGMENT_ALLOC as ALLOC
from dryfit.recording.model import SEGMENT_FREE as FREE
from dryfit.recording.model import SEGMENT_MAP as MAP
from dryfit.recording.model import SEGMENT_UNMAP as UNMAP
from dryfit.recording.model import DeviceTrace, Events, Segment
from dryfit.recording.replay import Lifetimes
from dryfit.rehearse.result import Ending, Result, Unknown
from dryfit.report.page import document, page, payload, tables, write_page
from dryfit.report.page.addresses import Span, segment_spans
from dryfit.report.page.header import header
from dryfit.report.page.names import short_names
from dryfit.report.page.thin import thin
from dryfit.report.text import verdict_line
from dryfit.units import format_bytes

from .synthetic import training

KIB, MIB = 1 << 10, 1 << 20


@pytest.mark.parametrize("module", ["addresses", "columns", "header", "markup", "names"])
def test_the_examples_in_the_docstrings_hold(module: str) -> None:
    assert doctest.testmod(importlib.import_module(f"dryfit.report.page.{module}")).failed == 0


def test_the_owners_sum_to_the_peak_with_the_four_asked_for_first(run: Analysis) -> None:
    text, peak = page(run), run.footprint.peak
    shown = re.findall(r'data-owner="([^"]+)" data-bytes="(\d+)"', text)
    assert [owner for owner, _ in shown[:4]] == ["parameter", "gradient", "optimizer state", "saved activation"]
    assert sum(int(size_bytes) for _, size_bytes in shown) == peak.allocated_bytes
    assert f"together {peak.allocated_bytes:,} bytes: exactly the peak." in text
    for size_bytes in (peak.fixed_bytes, peak.grows_with_batch_bytes, peak.logits_and_loss_bytes):
        assert f"<strong>{format_bytes(size_bytes)}</strong>" in text
    widths = [float(width) for width in re.findall(r'width="([\d.]+)%"[^>]*class="fill-owner', text.split("</svg>")[1])]
    assert sum(widths) == pytest.approx(100, abs=0.001)


def test_a_result_gives_the_verdict_and_what_is_not_known(run: Analysis) -> None:
    peak_bytes = run.footprint.peak.allocated_bytes
    unknown = Unknown(kind="value", what="item of float32", answer="1.0", decides_size=True, count=2)
    result = Result(
        verdict="fits", card={"name": "NVIDIA A10G", "total_bytes": 24 << 30}, program=["train.py"],
        peak_allocated_bytes=peak_bytes, peak_reserved_bytes=peak_bytes, peak_total_bytes=8 << 30,
        peak_total_range_bytes={"low": 8 << 30, "expected": 8 << 30, "high": 8 << 30}, usable_bytes=22 << 30,
        peak_step=2, peak_phase="loss", steps=3, notes=["A note of the result."], unknowns=[unknown],
        ending=Ending(how="finished", sentence="It ended by itself."), wall_seconds=1, exit_code=0,
    )  # fmt: skip
    text = page(run, result=result)
    assert f"<h1>{verdict_line(result)}</h1>" in text
    assert f'<p class="peak"><strong data-bytes="{peak_bytes}" id="peak-figure">' in text
    assert "<li>A note of the result.</li>" in text
    assert "<li>item of float32 (2 times), taken as 1.0; can change the bytes</li>" in text


def test_the_policy_allows_this_script_and_style_and_nothing_else(run: Analysis) -> None:
    text = page(run)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)
    assert policy
    scripts, styles = re.findall(r"<script>(.*?)</script>", text, re.S), re.findall(r"<style>(.*?)</style>", text, re.S)
    assert (len(scripts), len(styles)) == (1, 1)
    hashes = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in (*scripts, *styles)]
    assert policy[1].replace("&#x27;", "'") == (
        f"default-src 'none'; script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )
    assert not re.search(r"""(?:src|href)=["'](?!#)|url\((?!#|&quot;#)|@import|https?://""", text)
    assert " style=" not in text  # the policy would drop it


def test_every_asset_is_used_and_short() -> None:
    folder = Path(document.__file__).parent / "assets"
    used = {"page.html", *document._STYLES, *document._SCRIPTS}
    assert {path.name for path in folder.iterdir()} == used
    for path in folder.iterdir():
        assert len(path.read_text().splitlines()) <= 400
        assert "innerHTML" not in path.read_text() and "</script" not in path.read_text().replace("</script>\n", "")


def test_names_are_escaped_wherever_they_come() -> None:
    hostile = "</script><img src=x onerror=alert(1)>\"'&\ud800"
    text = page(training(1500, layers=2, names=hostile), title=hostile)
    assert "<img" not in text and text.count("</script>") == 2
    assert "&lt;img src=x onerror=alert(1)&gt;&quot;&#x27;&amp;\\ud800" in text


def test_a_page_that_cannot_be_written_is_said_in_one_sentence(run: Analysis, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as failure:
        write_page(run, tmp_path / "missing" / "run.html")
    assert str(failure.value) == (
        f"The page could not be saved as {tmp_path}/missing/run.html: No such file or directory; choose another path."
    )


def test_the_same_analysis_gives_the_same_page_wherever_it_is_made(
    run: Analysis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = page(run)
    monkeypatch.chdir(tmp_path)
    assert page(run) == text
    assert '<code title="/home/me/gpt/train.py">train.py:60</code>' in text  # the program is "train.py" of that folder


@pytest.mark.parametrize(
    ("program", "name"),
    [
        (["/home/me/gpt/train.py"], "train.py"),
        (["./gpt/train.py", "--lr", "1"], "gpt/train.py"),
        (["-m", "gpt.train"], "/home/me/gpt/train.py"),
        ("train.py", "/home/me/gpt/train.py"),
        ([7], "/home/me/gpt/train.py"),
        (None, "/home/me/gpt/train.py"),
    ],
)
def test_files_are_named_from_the_folder_the_program_was_started_in(run: Analysis, program: object, name: str) -> None:
    short = short_names(dataclasses.replace(run.recording, about={"program": program}))
    assert short("/home/me/gpt/train.py") == name
    assert short("/venv/lib/python3.12/site-packages/trl/trainer.py") == "trl/trainer.py"
    assert short("/elsewhere/data.py") == "/elsewhere/data.py"


def test_endless_names_do_not_make_an_endless_page() -> None:
    plain, long, longer = (len(page(training(1500, layers=2, names="x" * size))) for size in (0, 10_000, 100_000))
    assert long == pytest.approx(longer, rel=0.001)
    assert longer < plain + 500_000


def test_steps_with_the_same_figures_share_a_row_and_of_very_many_the_middle_is_left_out(run: Analysis) -> None:
    steps = run.footprint.steps
    same = dataclasses.replace(
        run.footprint, steps=(*steps, *(dataclasses.replace(steps[-1], step=4 + i) for i in range(9)))
    )
    found = tables._steps(same)
    assert "steps 3 to 12" in found and "left out" not in found
    many = [dataclasses.replace(steps[-1], step=step, end_allocated_bytes=step, phases=()) for step in range(1, 30_001)]
    footprint = dataclasses.replace(
        run.footprint, steps=tuple(many), peak=dataclasses.replace(run.footprint.peak, step=15_000)
    )
    found = tables._steps(footprint)
    assert found.count("<tr>") == 201 + 2  # the peak's step stays, and both parts of the table have a heading
    assert "29,799 rows from the middle are left out; --json has every step." in found
    assert 'step 15000 <span class="tag">the peak</span>' in found


def test_what_is_not_known_is_not_said_to_be_nothing(run: Analysis) -> None:
    whole = run.footprint.peak.allocated_bytes
    peak = dataclasses.replace(
        run.footprint.peak, owners=(OwnerBytes(owner="unknown", size_bytes=whole, blocks=1),),
        fixed_bytes=whole, grows_with_batch_bytes=0, logits_and_loss_bytes=0,
    )  # fmt: skip
    text = header(dataclasses.replace(run.footprint, peak=peak, source="snapshot", device=3), "", None)
    assert "from a memory snapshot, device 3" in text
    assert f"1 owner, together {whole:,} bytes: exactly the peak." in text
    for word in ("Parameters", "Gradients", "Fixed", "Grows with the batch"):
        assert word not in text


def test_a_recording_without_an_event_has_a_page() -> None:
    empty = training(0, layers=1, micro_batches=1)
    trace = dataclasses.replace(empty.trace, events=Events(), marks=(), labels=())
    from dryfit.analyse.stack_facts import facts_of
    from dryfit.analyse.summary import footprint_of
    from dryfit.recording.replay import replay

    replayed = replay(trace)
    attribution = dataclasses.replace(
        empty.attribution, owner=empty.attribution.owner[:0], module=empty.attribution.module[:0],
        line=empty.attribution.line[:0], is_logits_or_loss=bytearray(), tensor={},
    )  # fmt: skip
    footprint = footprint_of(empty.recording, trace, replayed, attribution, facts_of(empty.recording.stacks))
    nothing = Analysis(
        recording=empty.recording, trace=trace, replay=replayed, attribution=attribution, footprint=footprint
    )
    assert '<strong data-bytes="0" id="peak-figure">0 B</strong>' in page(nothing)


def test_a_steady_loop_takes_few_bytes_an_event() -> None:
    once, twice = (training(20_000, layers=12, micro_batches=size) for size in (2, 4))
    assert len(payload.payload(once).text) < 3 * len(once.trace.events)
    assert payload.payload(twice).thinned == ""


def test_thinning_spares_the_peaks_and_what_was_never_freed_and_says_so(run: Analysis) -> None:
    lifetimes, events = run.replay.lifetimes, len(run.trace.events)
    peaks = [step.peak.event for step in run.footprint.steps]
    kept, sentence = thin(lifetimes, events, peaks, keep_at_most=len(lifetimes) // 2)
    assert len(lifetimes) // 4 < len(kept) <= len(lifetimes) // 2
    left_out = set(range(len(lifetimes))) - set(kept)
    for peak in peaks:
        assert not any(lifetimes.begin[place] <= peak < lifetimes.end[place] for place in left_out)
        alive = [place for place in kept if lifetimes.begin[place] <= peak < lifetimes.end[place]]
        assert sum(lifetimes.block_bytes[place] for place in alive) == run.replay.allocated_bytes[peak]
    assert all(lifetimes.end[place] < events for place in left_out)
    found = re.fullmatch(
        r"([\d,]+) of ([\d,]+) allocations are left out of both pictures: blocks of at most (.+) that were freed "
        r"within [\d,]+ events\. None of them was allocated at the peak of the run or of a step, so the peaks are "
        r"exact; elsewhere the picture is too low by (.+) at most\.",
        sentence,
    )
    assert found and found[1] == f"{len(left_out):,}" and found[2] == f"{len(lifetimes):,}"
    assert found[3] == format_bytes(max(lifetimes.block_bytes[place] for place in left_out))
    too_low = [0] * (events + 1)
    for place in left_out:
        for event in range(lifetimes.begin[place], lifetimes.end[place]):
            too_low[event] += lifetimes.block_bytes[place]
    assert found[4] == format_bytes(max(too_low))


def test_nothing_is_thinned_that_has_to_stay() -> None:
    lifetimes = Lifetimes()
    for begin, end in ((0, 9), (1, 9), (2, 4)):
        for column, value in zip(
            (lifetimes.address, lifetimes.begin, lifetimes.end, lifetimes.block_bytes),
            (0, begin, end, 512),
            strict=True,
        ):
            column.append(value)
    assert thin(lifetimes, 9, [3], keep_at_most=1) == ([0, 1, 2], "")
    kept, sentence = thin(lifetimes, 9, [5], keep_at_most=1)
    assert kept == [0, 1] and sentence.startswith("1 of 3 allocations are left out")


def test_a_page_is_thinned_until_it_is_small_enough(run: Analysis) -> None:
    whole = payload.payload(run)
    small = payload.payload(run, most_characters=len(whole.text) - 4000)
    assert whole.thinned == "" and small.thinned
    assert len(small.text) <= len(whole.text) - 4000
    assert head_of(small.text)["lifetimes"] < head_of(whole.text)["lifetimes"]


def test_what_has_to_stay_is_shown_however_large_the_page(run: Analysis) -> None:
    assert head_of(payload.payload(run, most_characters=100).text)["lifetimes"] > 0


def head_of(text: str) -> dict[str, Any]:
    raw = gzip.decompress(base64.b64decode(text))
    head: dict[str, Any] = json.loads(raw[4 : 4 + int.from_bytes(raw[:4], "little")])
    return head


@pytest.mark.parametrize(
    ("happened", "segments", "spans"),
    [
        ([(ALLOC, 0, 4), (FREE, 0, 4), (ALLOC, 0, 4)], (), [(0, 1, 0, 4), (2, 3, 0, 4)]),
        ([(FREE, 0, 4)], (), [(-1, 0, 0, 4)]),
        ([(ALLOC, 0, 4)], ((0, 4), (8, 4)), [(-1, 1, 8, 4), (0, 1, 0, 4)]),
        # Two ranges of an expandable segment, of which one unmap takes the middle.
        ([(MAP, 0, 4), (MAP, 4, 4), (UNMAP, 2, 4)], (), [(0, 2, 2, 2), (0, 3, 0, 2), (1, 2, 4, 2), (1, 3, 6, 2)]),
    ],
)
def test_spans_of_segments(
    happened: list[tuple[int, int, int]], segments: tuple[tuple[int, int], ...], spans: list[tuple[int, int, int, int]]
) -> None:
    events = Events()
    for kind, address, size in happened:
        events.kind.append(kind), events.address.append(address), events.size.append(size)
    final = tuple(
        Segment(address=address, total_size=size, stream=0, is_small=False, is_expandable=False, pool=0, blocks=())
        for address, size in segments
    )
    assert segment_spans(DeviceTrace(device=0, events=events, segments=final)) == [Span(*span) for span in spans]

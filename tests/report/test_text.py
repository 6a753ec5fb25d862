"""The terminal report against goldens a person can read; `pytest tests/report --rewrite-goldens` rewrites them."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest

from dryfit.cards import find_card
from dryfit.rehearse.result import Communication, Ending, OutOfMemory, RankPeak, Result, StepPeak, Unknown
from dryfit.rehearse.total import OUTSIDE, TAKEN, Part
from dryfit.rehearse.world import World
from dryfit.report.text import describe_unknowns, print_result, verdict_line

GOLDEN = Path(__file__).parent / "golden"
GIB = 1 << 30
CARD = find_card("rtx-4090").to_dict()

FITS = Result(
    verdict="fits",
    card=CARD,
    program=["train.py"],
    peak_allocated_bytes=8 * GIB,
    peak_reserved_bytes=9 * GIB,
    peak_total_bytes=10 * GIB,
    peak_total_range_bytes={"low": 10 * GIB - (100 << 20), "expected": 10 * GIB, "high": 10 * GIB + (100 << 20)},
    total_parts=[
        Part(what=TAKEN, low_bytes=9 * GIB, expected_bytes=9 * GIB, high_bytes=9 * GIB),
        Part(what=OUTSIDE, low_bytes=GIB - (100 << 20), expected_bytes=GIB, high_bytes=GIB + (100 << 20)),
    ],
    usable_bytes=CARD["usable_bytes"],
    peak_step=2,
    peak_phase="backward",
    steps=4,
    step_peaks=[
        StepPeak(step=n, peak_allocated_bytes=n * 2 * GIB, peak_reserved_bytes=9 * GIB, peak_phase="backward")
        for n in range(5)
    ],
    ending=Ending(how="steady", sentence="Stopped after 4 optimiser steps, with the peak unchanged for the last two."),
    wall_seconds=2.5,
    exit_code=0,
)
OOM = OutOfMemory(
    step=3,
    phase="backward",
    requested_bytes=2 * GIB,
    free_bytes=GIB,
    allowed_bytes=24 * GIB,
    allocated_bytes=20 * GIB,
    reserved_bytes=22 * GIB,
    caught=False,
    count=1,
    message="CUDA out of memory. Tried to allocate 2.00 GiB. [not markup]",
    file="train.py",
    line=12,
)
UNKNOWNS = [
    Unknown(
        kind="memory", what="workspaces of cuSOLVER", answer="0 bytes or a lower bound",
        decides_size=True, count=68,
    ),
    Unknown(
        kind="value", what="item of float32", answer="1.0", decides_size=False, count=1,
        file="/elsewhere/train.py", line=9, source="print(loss.item())",
    ),
]  # fmt: skip
MANY_UNKNOWNS = [
    dataclasses.replace(each, what=f"{each.what} {number}", line=each.line and number)
    for number in range(1, 11)
    for each in UNKNOWNS
]
RESULTS = {
    "fits": FITS,
    "fits-but": dataclasses.replace(FITS, unknowns=UNKNOWNS, notes=["A note."]),
    "does-not-fit": dataclasses.replace(
        FITS,
        verdict="does not fit",
        out_of_memory=OOM,
        exit_code=1,
        ending=Ending(how="out of memory", sentence="train.py ran out of memory (train.py:12)."),
    ),
    "too-close": dataclasses.replace(FITS, verdict="unknown", exit_code=3),
    "need": dataclasses.replace(
        FITS,
        verdict="unknown",
        card=None,
        usable_bytes=None,
        fits_on=["rtx-3080-10gb", "rtx-3080-12gb", "rtx-4070", "t4", "a2", "l4", "h100-sxm", "h200"],
        close_on=["rtx-2080-ti"],
        does_not_fit_on=["rtx-3070"],
    ),
    "failed-late": dataclasses.replace(
        FITS, verdict="unknown", exit_code=2, ending=Ending(how="raised", sentence="train.py failed after 4 steps.")
    ),
    "nothing": dataclasses.replace(
        FITS,
        verdict="unknown",
        peak_allocated_bytes=0,
        peak_reserved_bytes=0,
        peak_total_bytes=0,
        step_peaks=[],
        exit_code=2,
        ending=Ending(
            how="finished", sentence="train.py ended without importing torch, so there is nothing to measure."
        ),
    ),
    "many-steps": dataclasses.replace(FITS, step_peaks=FITS.step_peaks * 4, unknowns=MANY_UNKNOWNS),
}


def printed(result: Result) -> str:
    out = io.StringIO()
    print_result(result, file=out)
    return out.getvalue()


@pytest.mark.parametrize("name", RESULTS)
def test_the_report_is_as_committed(name: str, rewrite_goldens: bool) -> None:
    path = GOLDEN / f"{name}.txt"
    if rewrite_goldens:
        path.write_text(printed(RESULTS[name]))
    assert printed(RESULTS[name]) == path.read_text()


@pytest.mark.parametrize("name", RESULTS)
def test_the_verdict_is_the_first_line_whatever_the_width(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    assert printed(RESULTS[name]).splitlines()[0] == verdict_line(RESULTS[name])


def test_the_need_of_a_rank_names_the_rank() -> None:
    alone = dataclasses.replace(RESULTS["need"], world=World(size=8, rank=7))
    assert verdict_line(alone).startswith("NEEDS 9.00 GiB reserved by PyTorch as rank 7 of 8; fits on ")


def test_a_rank_that_failed_is_named_with_its_error_in_the_first_line() -> None:
    """With the figures of the other one, which had an answer, below."""
    ranks = [
        RankPeak(rank=rank, verdict=verdict, peak_allocated_bytes=each, peak_reserved_bytes=each, peak_total_bytes=each)
        for rank, verdict, each in ((0, "fits", 3 * GIB), (7, "unknown", 0))
    ]
    late = dataclasses.replace(RESULTS["failed-late"], world=World(size=8, rank=7), ranks=ranks)
    assert verdict_line(late) == (
        "UNKNOWN on NVIDIA GeForce RTX 4090 as rank 7 of 8: took 10.00 GiB of 23.52 GiB until it was over. train.py "
        "failed after 4 steps."
    )
    of_no_card = dataclasses.replace(late, card=None)
    assert verdict_line(of_no_card) == (
        "UNKNOWN as rank 7 of 8: took 9.00 GiB reserved by PyTorch until it was over. train.py failed after 4 steps."
    )
    early = dataclasses.replace(late, peak_reserved_bytes=0, peak_total_bytes=0)
    assert verdict_line(early) == "NOTHING MEASURED as rank 7 of 8: train.py failed after 4 steps."
    lines = printed(early).splitlines()
    assert "   0   3.00 GiB  3.00 GiB    3.00 GiB          0 B  fits" in lines
    assert "   7        0 B       0 B         0 B          0 B  nothing measured" in lines
    assert printed(early).count("train.py failed after 4 steps.") == 1


def test_a_world_of_the_program_s_own_is_said_below_the_first_line() -> None:
    note = "The program never made a process group."
    alone = dataclasses.replace(FITS, world=World(size=8), world_notes=[note], notes=["A note.", note])
    lines = printed(alone).splitlines()
    assert lines[:2] == [verdict_line(FITS), note]
    assert lines[-1] == "A note."
    assert lines.count(note) == 1


def test_what_is_sent_is_of_a_step_only_where_steps_were_counted() -> None:
    """Nobody calls `step` of a ZeroRedundancyOptimizer with `overlap_with_ddp`."""
    sent = {"all-reduce": Communication(calls=9, payload_bytes=GIB, sent_bytes=GIB)}
    peak = RankPeak(
        rank=0, verdict="fits", peak_allocated_bytes=0, peak_reserved_bytes=0, peak_total_bytes=GIB, sent_bytes=GIB
    )
    counted = dataclasses.replace(FITS, communication=sent, ranks=[peak])
    lines = printed(counted).splitlines()
    assert "Each step sends 1.00 GiB: all-reduce 1.00 GiB" in lines
    assert "rank  allocated  reserved  nvidia-smi  sent a step" in lines
    lines = printed(dataclasses.replace(counted, steps=0)).splitlines()
    assert "1.00 GiB were sent in all, and no optimizer step was counted: all-reduce 1.00 GiB" in lines
    assert "rank  allocated  reserved  nvidia-smi      sent" in lines


def test_what_one_line_reads_without_weight_is_one_line() -> None:
    """As the tensors of a model that `torch.save` reads; what can change the bytes has a line each."""
    reads = [dataclasses.replace(UNKNOWNS[1], what=f"copy of uint8[{size}] to the host", count=2) for size in (8, 4, 2)]
    workspaces = [dataclasses.replace(UNKNOWNS[0], what=f"workspaces of {each}") for each in ("cuFFT", "cuSOLVER")]
    weighs = [dataclasses.replace(each, decides_size=True) for each in reads]
    lines = describe_unknowns([*workspaces, *reads, dataclasses.replace(reads[0], answer="0"), *weighs])
    assert lines[2] == (
        "copy of uint8[8] to the host, and 2 more like it, at /elsewhere/train.py:9 (6 times), taken as 1.0; does not "
        "change the bytes by itself: print(loss.item())"
    )
    assert lines[3].startswith("copy of uint8[8] to the host at /elsewhere/train.py:9 (2 times), taken as 0; ")
    assert len(lines) == 2 + 1 + 1 + 3


def test_no_line_ends_in_blanks() -> None:
    for result in RESULTS.values():
        assert [line for line in printed(result).splitlines() if line != line.rstrip()] == []


def test_what_a_program_says_does_nothing_to_the_terminal() -> None:
    bad = dataclasses.replace(
        FITS,
        ending=dataclasses.replace(FITS.ending, how="raised", sentence="The program raised Oops: a\x1b[2J[red]b"),
        notes=["Two lines:\n  of a traceback"],
        unknowns=[dataclasses.replace(UNKNOWNS[1], source="x\x07y")],
    )
    written = io.StringIO()
    print_result(bad, written)
    text = written.getvalue()
    assert "The program raised Oops: a\\x1b[2J[red]b\n" in text
    assert "\nTwo lines:\n  of a traceback\n" in text
    assert "x\\x07y" in text
    assert "\x1b" not in text


def test_a_stream_that_has_not_all_characters_gets_the_report_all_the_same() -> None:
    raw = io.BytesIO()
    narrow = io.TextIOWrapper(raw, encoding="ascii")
    print_result(FITS, narrow)
    narrow.flush()
    assert b"\\xb1 100.00 MiB" in raw.getvalue()

"""The footprint as a part of the result; where a recording fails, the figures still stand, and a note says so."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from dryfit.recording.file import save
from dryfit.recording.model import SEGMENT_ALLOC, Recording
from dryfit.rehearse import footprints
from dryfit.rehearse.assemble import Observed
from dryfit.rehearse.footprints import recordings_in, with_footprint
from dryfit.rehearse.result import Result

from ..analyse.build import MIB, Script, at
from ..results import PLAIN_RESULT

PID = 4711


def recording(**about: Any) -> Recording:
    script = Script()
    script.phase("setup", step=0)
    script.alloc(4 * MIB, at("/elsewhere/train.py", 1), owner="parameter")
    script.phase("forward", step=1)
    return dataclasses.replace(script.recording(), about=about)


def result(peak_allocated_bytes: int = 4 * MIB) -> Result:
    return dataclasses.replace(
        PLAIN_RESULT,
        peak_allocated_bytes=peak_allocated_bytes,
        steps=1,
        notes=["A note of before."],
        processes=[{"pid": PID, "peak_used_bytes": 21 * MIB}],
    )


def observed(recordings: dict[int, Recording], *events: dict[str, Any]) -> Observed:
    return Observed(
        program=["train.py"],
        processes=[[{"event": "start", "pid": PID}, *events]],
        status=0,
        signal=None,
        stopped_by=None,
        limit="",
        crash_place=None,
        devices=1,
        wall_seconds=1.0,
        notes=[],
        total_bytes=1 << 40,
        recordings=recordings,
    )


def test_the_recording_knows_the_run_and_the_result_the_owners() -> None:
    found = with_footprint(result(), observed({PID: recording(), 1: recording()}))
    assert found.footprint is not None and found.recording is not None
    assert [(one.owner, one.size_bytes) for one in found.footprint.peak.owners] == [("parameter", 4 * MIB)]
    assert found.recording.about["program"] == ["train.py"]
    assert found.recording.about["peak_used_bytes"] == 21 * MIB
    assert found.notes == ["A note of before."]


def test_without_a_recording_of_its_process_the_result_is_as_before() -> None:
    assert with_footprint(result(), observed({1: recording()})) == result()
    nothing = dataclasses.replace(result(), processes=[])
    assert with_footprint(nothing, observed({PID: recording()})) == nothing


def test_a_recorder_that_failed_is_told_and_what_it_has_is_shown() -> None:
    found = with_footprint(result(), observed({PID: recording()}, {"event": "unrecorded", "trace": "KeyError: 1\n"}))
    assert found.footprint is not None
    assert found.notes[1:] == [
        "Who owned the memory could not be found out in full. This is our fault; please report it with these lines:\n"
        "KeyError: 1"
    ]


def test_an_analysis_that_fails_costs_only_the_footprint(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(recording: Recording) -> Any:
        raise ZeroDivisionError("bug")

    monkeypatch.setattr(footprints, "analyse", fails)
    found = with_footprint(result(), observed({PID: recording()}))
    assert found.footprint is None and found.recording is not None
    assert found.notes[1].startswith("Who owned the memory could not be found out. This is our fault;")
    assert found.notes[1].endswith("ZeroDivisionError: bug")


@pytest.mark.parametrize(
    ("peak_bytes", "more"),
    [(4 * MIB, ""), (9 * MIB, " Owners are those of the highest moment until then, 4.00 MiB.")],
)
def test_a_recording_that_ends_before_the_program_says_where(peak_bytes: int, more: str) -> None:
    found = with_footprint(result(peak_bytes), observed({PID: recording(is_cut=True)}))
    assert found.notes[1] == (
        f"The recording ends in step 1, with more events than are kept; the figures are of all steps.{more}"
    )


def test_events_that_are_lost_are_told() -> None:
    found = with_footprint(result(9 * MIB), observed({PID: recording(lost_events=True)}))
    assert found.notes[1:] == [
        "More events came between two passes of the program than are kept, and the first of them are lost. The figures "
        "are of all; steps and phases are not told apart, and owners are known only as far as stacks tell."
    ]


@pytest.mark.parametrize(
    ("allocated_bytes", "reserved_bytes", "differing"),
    [
        (4 * MIB + 512, 20 * MIB, "4,194,304 bytes allocated against 4,194,816"),
        (4 * MIB, 22 * MIB, "20,971,520 bytes reserved against 23,068,672"),
        (0, 0, "4,194,304 bytes allocated against 0 and 20,971,520 bytes reserved against 0"),
    ],
)
def test_a_recording_that_is_not_of_the_allocator_s_peaks_is_our_fault(
    allocated_bytes: int, reserved_bytes: int, differing: str
) -> None:
    counted = dataclasses.replace(result(allocated_bytes), peak_reserved_bytes=reserved_bytes)
    found = with_footprint(counted, observed({PID: recording()}))
    assert found.notes[1:] == [
        f"The recording's peak is not the one that PyTorch's allocator counted: {differing}. Who owned the memory may "
        "be off by as much. This is our fault; please report it, with the program if you can."
    ]


def test_the_peaks_are_those_of_all_devices() -> None:
    first = recording()
    script = Script()
    for _ in range(3):
        script.free(script.alloc(3 * MIB))
    other = dataclasses.replace(script.recording().devices[0], device=1)
    events = other.events
    events.kind.append(SEGMENT_ALLOC)
    for column, value in ((events.address, 1 << 44), (events.size, 40 * MIB)):
        column.append(value)
    for column in (events.stream, events.pool, events.stack, events.time_us):
        column.append(0)
    both = dataclasses.replace(first, devices=(*first.devices, other))
    counted = dataclasses.replace(result(), peak_reserved_bytes=60 * MIB)
    assert with_footprint(counted, observed({PID: both})).notes == ["A note of before."]


def test_a_damaged_recording_costs_only_itself(tmp_path: Path) -> None:
    save(recording(), tmp_path / "12.recording")
    save(recording(), tmp_path / "13.recording")
    (tmp_path / "13.recording").write_bytes((tmp_path / "13.recording").read_bytes()[:-30])
    (tmp_path / "12.jsonl").write_text("{}\n")
    recordings, unreadable = recordings_in(tmp_path)
    assert list(recordings) == [12]
    (tmp_path / "12.recording").unlink()
    assert len(recordings[12].devices[0].events.kind) == 2, "its file stays open"
    (sentence,) = unreadable
    assert sentence.startswith("Who owned the memory of process 13 is not known. The recording ")
    assert "is damaged" in sentence

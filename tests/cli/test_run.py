"""`dryfit run`: the files it writes. What a rehearsal finds is given here; tests/rehearse has real ones."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from dryfit import cli
from dryfit.analyse import analyse
from dryfit.errors import UsageError
from dryfit.recording import model
from dryfit.recording.file import load
from dryfit.rehearse import launch
from dryfit.rehearse.result import Result
from dryfit.units import format_bytes

from ..analyse.build import MIB, Script, at
from ..results import PLAIN_RESULT

Captured = pytest.CaptureFixture[str]


def result_of(script: Script) -> Result:
    recording = script.recording()
    return dataclasses.replace(PLAIN_RESULT, recording=recording, analysis=analyse(recording))


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    """What every rehearsal of this test finds; the current folder has a program and nothing else."""
    script = Script()
    script.phase(model.SETUP, step=0)
    script.alloc(4 * MIB, at("/elsewhere/train.py", 1), owner=model.PARAMETER, name="fc.weight")
    result = result_of(script)
    monkeypatch.setattr(launch, "rehearse", lambda *words, **options: result)
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("the program")
    return result


@pytest.fixture
def no_rehearsal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*words: Any, **options: Any) -> Any:
        raise AssertionError("the program was run")

    monkeypatch.setattr(launch, "rehearse", fails)
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("the program")


def test_files_are_written_and_named_on_stderr(found: Result, capsys: Captured) -> None:
    assert cli.main(["run", "-o", "r.json", "--record", "run.dryfit", "--report", "run.html", "train.py"]) == 0
    seen = capsys.readouterr()
    assert "NEEDS 20.00 MiB reserved by PyTorch" in seen.out
    assert seen.err.splitlines() == [
        f"Wrote {name} ({format_bytes(Path(name).stat().st_size)})" for name in ("r.json", "run.dryfit", "run.html")
    ]
    assert Result.load("r.json").peak_reserved_bytes == 20 * MIB
    assert load("run.dryfit").devices[0].labels[0].name == "fc.weight"
    assert "<html" in Path("run.html").read_text()


def test_a_file_that_cannot_be_written_in_the_end_costs_no_other(found: Result, capsys: Captured) -> None:
    """The disk may be full by then: what was found took minutes, and is printed and saved as far as it can be."""
    words = ["run", "--json", "-o", "r.json", "--record", "run.dryfit", "--report", "/dev/full", "train.py"]
    assert cli.main(words) == 2
    seen = capsys.readouterr()
    assert '"peak_reserved_bytes": 20971520' in seen.out
    assert seen.err.splitlines()[-1].startswith("dryfit: The page could not be saved as /dev/full: No space left on")
    assert load("run.dryfit").devices
    assert Result.load("r.json")


def test_every_file_that_could_not_be_written_is_named(
    found: Result, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    unused = dataclasses.replace(found, recording=None, peak_reserved_bytes=0)
    monkeypatch.setattr(launch, "rehearse", lambda *words, **options: unused)
    assert cli.main(["run", "-o", "/dev/full", "--record", "run.dryfit", "--report", "run.html", "train.py"]) == 2
    assert capsys.readouterr().err == (
        "dryfit: The result could not be saved as /dev/full: No space left on device; choose another path. "
        "There is no recording to save as run.dryfit: PyTorch's allocator was not used. "
        "There is nothing to show in run.html: PyTorch's allocator was not used.\n"
    )


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_reader_that_has_had_enough(options: list[str], found: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    read, written = os.pipe()
    os.close(read)
    with os.fdopen(written, "w") as closed:
        monkeypatch.setattr("sys.stdout", closed)
        assert cli.main(["run", *options, "-o", "r.json", "train.py"]) == 141
    assert Result.load("r.json").peak_reserved_bytes == 20 * MIB


def test_a_page_of_what_we_could_not_analyse_costs_nothing_else(
    found: Result, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = dataclasses.replace(found, analysis=None)
    monkeypatch.setattr(launch, "rehearse", lambda *words, **options: failed)
    assert cli.main(["run", "-o", "/dev/full", "--record", "run.dryfit", "--report", "run.html", "train.py"]) == 70
    seen = capsys.readouterr()
    assert seen.out.startswith("NEEDS 20.00 MiB")
    assert seen.err.splitlines()[-1] == (
        "dryfit: The result could not be saved as /dev/full: No space left on device; choose another path. "
        "There is nothing to show in run.html: who owned the memory could not be found out. This is our fault; please "
        "report it with the lines in the result's notes."
    )
    assert load("run.dryfit").devices and not Path("run.html").exists()


def test_the_page_is_of_the_analysis_that_was_made(found: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dryfit.analyse.analysis.replay", None)  # a second analysis would call it
    found.save_report("run.html")
    assert Path("run.html").stat().st_size > 10_000
    assert "analysis" not in repr(found) and "analysis" not in found.to_dict()
    assert dataclasses.replace(found, analysis=None) == found


@pytest.mark.parametrize("option", ["-o", "--report", "--record"])
@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        (".", "{option} cannot write to ., which is a folder; name a file."),
        ("", "{option} cannot write to ., which is a folder; name a file."),
        ("no/where", "There is no folder to save no/where in; make it first, or name another."),
        ("./train.py", "{option} would write over train.py, which this command reads; name another file."),
    ],
)
def test_a_place_that_cannot_be_is_said_before_anything_runs(
    option: str, place: str, sentence: str, no_rehearsal: None, capsys: Captured
) -> None:
    assert cli.main(["run", option, place, "train.py"]) == 2
    assert capsys.readouterr().err == f"dryfit: {sentence.format(option=option)}\n"
    assert Path("train.py").read_text() == "the program"


def test_two_options_for_one_file_are_refused(no_rehearsal: None, capsys: Captured) -> None:
    assert cli.main(["run", "-o", "out", "--report", "./out", "train.py"]) == 2
    assert capsys.readouterr().err == "dryfit: -o and --report both name out; each needs a file of its own.\n"


def test_a_folder_that_is_read_only(no_rehearsal: None, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    assert cli.main(["run", "--report", "run.html", "train.py"]) == 2
    assert capsys.readouterr().err == (
        "dryfit: --report may not write to run.html: it or its folder is read-only; name another place.\n"
    )


def test_why_there_is_no_recording_is_said(found: Result, tmp_path: Path) -> None:
    unused = dataclasses.replace(found, recording=None, peak_reserved_bytes=0)
    for save, what in ((unused.save_report, "There is nothing to show in x"), (unused.save_recording, "There is no")):
        with pytest.raises(UsageError, match=rf"{what}.*: PyTorch's allocator was not used\.$"):
            save("x")
    found.save("r.json")
    for save in (Result.load("r.json").save_report, Result.load("r.json").save_recording):
        with pytest.raises(UsageError, match=r"a result that was read from a file has no recording, .* run the progr"):
            save("x")


def test_closed_streams_do_not_get_each_others_words(
    found: Result, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", None)
    assert cli.main(["run", "--json", "-o", "r.json", "train.py"]) == 0
    assert "Wrote" not in capsys.readouterr().out

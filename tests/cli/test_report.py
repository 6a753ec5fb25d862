"""`dryfit report`: what goes where, and that wrong words are sentences before any work is done."""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dryfit import cli
from dryfit.analyse.footprint import Footprint
from dryfit.recording import model
from dryfit.recording.file import save

from ..analyse.build import MIB, Script, at


def script(batch: int) -> Script:
    """A step with a weight of 4 MiB and an activation of as many MiB as the batch has samples."""
    script = Script()
    script.phase(model.SETUP, step=0)
    script.alloc(4 * MIB, at("/elsewhere/train.py", 1), owner=model.PARAMETER, name="fc.weight")
    script.phase(model.FORWARD, step=1)
    held = script.alloc(
        batch * MIB, at("/elsewhere/train.py", 2, "forward"), owner=model.ACTIVATION, name="x", dtype="float32",
        shape=(batch, 1 << 18),
    )  # fmt: skip
    script.phase(model.BACKWARD)
    script.free(held)
    return script


@pytest.fixture
def recordings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, which becomes the current one, with the recordings of two batch sizes."""
    for batch in (2, 6):
        save(script(batch).recording(), tmp_path / f"batch-{batch}.dryfit")
    monkeypatch.chdir(tmp_path)
    return tmp_path


Captured = pytest.CaptureFixture[str]


def test_the_report_of_a_recording_goes_to_stdout(recordings: Path, capsys: Captured) -> None:
    assert cli.main(["report", "batch-2.dryfit"]) == 0
    seen = capsys.readouterr()
    assert seen.out.startswith("PEAK 6.00 MiB allocated by tensors in step 1, forward;")
    assert re.search(r"^parameter +4\.00 MiB +67% +1  ####", seen.out, re.MULTILINE)
    assert "/elsewhere/train.py:2" in seen.out
    assert seen.err == ""


def test_json_is_the_footprint_and_can_be_read_back(recordings: Path, capsys: Captured) -> None:
    assert cli.main(["report", "--json", "batch-2.dryfit"]) == 0
    footprint = Footprint.from_dict(json.loads(capsys.readouterr().out))
    assert footprint.peak.allocated_bytes == 6 * MIB


def test_files_that_are_asked_for_are_written_and_named_and_nothing_else_is(recordings: Path, capsys: Captured) -> None:
    words = ["--html", "o.html", "--snapshot", "o.pickle", "--perfetto", "o.json", "-o", "footprint.json"]
    assert cli.main(["report", *words, "batch-2.dryfit"]) == 0
    seen = capsys.readouterr()
    assert seen.out == ""
    assert [line.split(" (")[0] for line in seen.err.splitlines()] == [
        "Wrote o.html", "Wrote o.pickle", "Wrote o.json", "Wrote footprint.json",
    ]  # fmt: skip
    assert "<html" in Path("o.html").read_text()
    assert len(pickle.loads(Path("o.pickle").read_bytes())["device_traces"]) == 1
    assert json.loads(Path("o.json").read_text())["traceEvents"]
    assert Footprint.from_dict(json.loads(Path("footprint.json").read_text())).peak.step == 1


def test_the_size_of_what_was_written_is_said(recordings: Path, capsys: Captured) -> None:
    from dryfit.units import format_bytes

    assert cli.main(["report", "--perfetto", "o.json", "batch-2.dryfit"]) == 0
    assert capsys.readouterr().err == f"Wrote o.json ({format_bytes(Path('o.json').stat().st_size)})\n"


def test_files_and_the_text(recordings: Path, capsys: Captured) -> None:
    assert cli.main(["report", "--text", "-o", "footprint.json", "batch-2.dryfit"]) == 0
    assert capsys.readouterr().out.startswith("PEAK")
    assert Path("footprint.json").exists()


def test_files_are_written_even_if_nobody_reads_the_text(recordings: Path) -> None:
    command = f"{sys.executable} -m dryfit report --text -o footprint.json --perfetto o.json batch-2.dryfit | true"
    subprocess.run(["bash", "-c", command], check=True, cwd=recordings)
    assert Path("footprint.json").exists() and Path("o.json").exists()


@pytest.mark.parametrize("words", [["batch-2.dryfit"], ["--json", "batch-2.dryfit"], ["batch-2.dryfit"] * 2])
def test_a_reader_that_has_had_enough(words: list[str], recordings: Path) -> None:
    read, written = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "dryfit", "report", *words]
    done = subprocess.run(command, stdout=written, stderr=subprocess.PIPE, text=True, check=False)
    os.close(written)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_snapshot_that_was_written_is_reported_on_too(recordings: Path, capsys: Captured) -> None:
    assert cli.main(["report", "--snapshot", "o.pickle", "batch-2.dryfit"]) == 0
    assert cli.main(["report", "o.pickle"]) == 0
    assert capsys.readouterr().out.startswith("PEAK 6.00 MiB allocated by tensors")


def test_two_files_are_compared(recordings: Path, capsys: Captured) -> None:
    assert cli.main(["report", "batch-2.dryfit", "batch-6.dryfit"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("PEAK 6.00 MiB -> 10.00 MiB allocated by tensors: 4.00 MiB more, +67%\n")
    assert "The batch is 2 in A and 6 in B." in out
    assert "each further sample takes 1.00 MiB at the peak, and 4.00 MiB are there whatever the batch." in out
    assert "What goes with the batch: saved activation 2.00 MiB -> 6.00 MiB." in out


def test_a_comparison_as_json(recordings: Path, capsys: Captured) -> None:
    assert cli.main(["report", "--json", "-o", "both.json", "batch-2.dryfit", "batch-6.dryfit"]) == 0
    seen = capsys.readouterr()
    values = json.loads(seen.out)
    assert values == json.loads(Path("both.json").read_text())
    assert (values["before"]["allocated_bytes"], values["after"]["allocated_bytes"]) == (6 * MIB, 10 * MIB)
    assert values["batch"]["bytes_per_sample"] == MIB
    assert seen.err.startswith("Wrote both.json")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["a", "b", "c"], "3 files were given; name one to report on, or two to compare."),
        (["--html", "o.html", "a", "b"], "--html shows one run, and two files were given; leave one out."),
        (["--perfetto", "nowhere/o.json", "a"], "There is no folder to save nowhere/o.json in; make it first"),
        (["--html", ".", "a"], "--html cannot write to ., which is a folder; name a file."),
        (["--html", "o", "-o", "o", "a"], "-o and --html both name o; each needs a file of its own."),
        (["--html", "o", "--perfetto", "./o", "a"], "--html and --perfetto both name o; each needs a file of its own."),
        (
            ["-o", "./batch-2.dryfit", "batch-2.dryfit"],
            "-o would write over batch-2.dryfit, which this command reads; name another file.",
        ),
        (["missing"], "There is no file missing; check the path"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(
    words: list[str], sentence: str, recordings: Path, capsys: Captured
) -> None:
    before = sorted(recordings.iterdir())
    assert cli.main(["report", *words]) == 2
    seen = capsys.readouterr()
    assert seen.out == ""
    assert seen.err.startswith(f"dryfit: {sentence}")
    assert seen.err.count("\n") == 1
    assert sorted(recordings.iterdir()) == before


def test_a_device_that_is_not_in_the_recording(recordings: Path, capsys: Captured) -> None:
    assert cli.main(["report", "--device", "5", "batch-2.dryfit"]) == 2
    seen = capsys.readouterr()
    assert seen.out == ""
    assert "device 5" in seen.err


def test_a_current_folder_that_is_gone(recordings: Path) -> None:
    def report(file: str) -> subprocess.CompletedProcess[str]:
        command = f"mkdir gone && cd gone && rmdir ../gone && {sys.executable} -P -m dryfit report {file}"
        return subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=recordings, check=False)

    assert report(f"{recordings}/batch-2.dryfit").stdout.startswith("PEAK 6.00 MiB")
    assert report("missing").stderr == (
        "dryfit: There is no file missing; check the path, for the current folder has been deleted.\n"
    )


def test_the_example_of_the_docs_runs(recordings: Path, capsys: Captured) -> None:
    text = (Path(__file__).parents[2] / "docs" / "report.md").read_text()
    example = text.partition("```python\n")[2].partition("```")[0]
    for name, batch in (("run.dryfit", 2), ("other.dryfit", 6)):
        (recordings / f"batch-{batch}.dryfit").rename(name)
    exec(compile(example, "docs/report.md", "exec"), {})
    out = capsys.readouterr().out
    assert out.startswith("PEAK 6.00 MiB allocated") and "PEAK 6.00 MiB -> 10.00 MiB" in out
    assert Path("run.html").stat().st_size > 10_000


def test_a_report_loads_no_torch(recordings: Path) -> None:
    code = "import sys; from dryfit.cli import main; main(['report', sys.argv[1]]); print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, "batch-2.dryfit"], capture_output=True, text=True, check=True, cwd=recordings
    )
    assert done.stdout.splitlines()[-1] == "False"

"""Workspaces of convolutions in rehearsals: cuDNN's own, from a process that comes with the first question and goes."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import dryfit
from dryfit.cards import find_card
from dryfit.rehearse import child, plans, workspaces
from dryfit.rehearse.result import Unknown
from dryfit.rehearse.warm import warm_rehearsals
from dryfit.virtual_card import installed_torch
from dryfit.virtual_card.cudnn import Oracle, oracle_for
from dryfit.virtual_card.settings import settings_of

from ..results import PLAIN_RESULT
from .conftest import Rehearse

CONVOLVE = Path(__file__).parent / "programs" / "convolve.py"
KINDS = Path(__file__).parents[1] / "virtual_card" / "programs" / "convolutions.py"
GOLDENS = Path(__file__).parent / "goldens"
MIB = 1 << 20

TORCH = installed_torch()
ORACLE = oracle_for(settings_of(find_card("a100-80gb")), TORCH)
pytestmark = pytest.mark.skipif(ORACLE.library is None, reason=ORACLE.doubt or "cuDNN can be asked")


@pytest.fixture(autouse=True)
def answers(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of answers: one of its own for each test, not yet there."""
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    return cache / "dryfit" / "cudnn"


def servers() -> list[int]:
    """Processes that have cuDNN loaded for one of the tests: the answers they write are in the command."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if b"dryfit-cudnn-server\0" in command and os.environ["XDG_CACHE_HOME"].encode() in command:
            found.append(int(folder.name))
    return found


def wait_until(true: bool) -> None:
    began = time.monotonic()
    while bool(servers()) != true:
        assert time.monotonic() - began < 60
        time.sleep(0.05)


# ---- figures --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("gpu", "dtype", "mode"),
    [
        ("a100-80gb", "float32", ""),
        ("a100-80gb", "float32", "benchmark"),
        ("h100-sxm", "bfloat16", ""),
        ("rtx-4090", "float16", ""),
        ("t4", "float16", ""),
    ],
)
def test_every_kind_of_convolution(rehearse: Rehearse, rewrite_goldens: bool, gpu: str, dtype: str, mode: str) -> None:
    """What each kind takes beyond its input and weights, with the cuDNN and torch that the golden is named after."""
    version = TORCH.version.split("+")[0]
    golden = GOLDENS / f"workspaces-cudnn{TORCH.cudnn}-torch{version}.json"
    found = rehearse(KINDS, dtype, *filter(None, [mode]), gpu=gpu, options=("--steps", "all"))
    assert found.code == 0, found.stderr
    peaks = json.loads(next(line for line in found.stderr.splitlines() if line.startswith("{")))
    assert found.result["workspaces"]["plans"] >= 3 * (
        len(peaks) - 1
    )  # torch has kernels of its own for depthwise ones
    assert not any("WORKSPACE_SIZE" in unknown["what"] for unknown in found.result["unknowns"])
    goldens = json.loads(golden.read_text()) if golden.exists() else {}
    key = " ".join(filter(None, [gpu, dtype, mode]))
    if rewrite_goldens:
        golden.write_text(json.dumps(goldens | {key: peaks}, indent=1, sort_keys=True) + "\n")
    elif not golden.exists():
        pytest.skip(f"there is no {golden.name}")
    else:
        assert peaks == goldens[key]


def test_the_peak_has_the_workspace_and_its_range(rehearse: Rehearse) -> None:
    """A convolution that multiplies matrices through cuBLASLt is given 128 MiB, which is the whole of this peak."""
    program = """
        import torch
        convolution = torch.nn.Conv2d(64, 64, 1, bias=False).cuda()
        convolution(torch.empty(8, 64, 56, 56, device="cuda"))
    """
    found = rehearse(program, gpu="a100-80gb", options=("--steps", "all"))
    assert found.code == 0, found.stderr
    tensors = 2 * 8 * 64 * 56 * 56 * 4 + 64 * 64 * 4
    assert found.result["peak_allocated_bytes"] == tensors + 128 * MIB
    total = found.result["peak_total_range_bytes"]
    card = found.result["card"]
    assert total["expected"] - total["low"] == card["outside_bytes"] - card["outside_low_bytes"] + 128 * MIB
    # Reserved memory scatters more.
    assert total["high"] - total["expected"] == card["outside_margin_bytes"] + 3 * 128 * MIB
    assert found.result["verdict"] == "fits"
    assert (
        "One convolution takes a plan through cuBLASLt, which cuDNN offers on a card only. Such a plan was given "
        "128 MiB, as most of them have been seen to take; with less, the peak of tensors is up to 128.00 MiB lower, "
        "and what is reserved may be less or more."
    ) in found.result["notes"]
    assert (
        "up to 128.00 MiB less or 384.00 MiB more, workspaces of convolutions; up to 102.48 MiB less or 100.00 MiB more"
        in found.stdout
    )


def test_a_plan_that_does_not_fit_gives_way_to_a_smaller_one(rehearse: Rehearse) -> None:
    """Torch goes on to the next plan where a workspace does not fit, so workspaces end no program."""
    program = """
        import torch
        convolution = torch.nn.Conv2d(64, 64, 1, bias=False).cuda()
        torch.cuda.set_per_process_memory_fraction(100 / 1024)
        convolution(torch.empty(8, 64, 56, 56, device="cuda"))
    """
    found = rehearse(program, gpu="sm=80,sms=108,memory=1GiB,outside=0", options=("--steps", "all"))
    assert found.code == 0, found.stderr
    assert found.result["workspaces"]["on_a_card_only"] == 0
    assert 2 * 8 * 64 * 56 * 56 * 4 < found.result["peak_allocated_bytes"] < 100 * MIB


# ---- the file of answers --------------------------------------------------------------------------------------------
def test_a_second_run_asks_nobody(rehearse: Rehearse, answers: Path) -> None:
    first = rehearse(CONVOLVE, gpu="a100-80gb")
    (file,) = answers.iterdir()
    text = file.read_text()
    assert len(text.split("\n\n")) >= 2 * 8  # configurations and a plan for each of eight convolutions
    second = rehearse(CONVOLVE, gpu="a100-80gb")
    assert second.result["peak_reserved_bytes"] == first.result["peak_reserved_bytes"]
    assert file.read_text() == text
    rehearse(CONVOLVE, gpu="t4")
    assert len(list(answers.iterdir())) == 2
    assert servers() == []


@pytest.mark.parametrize("damage", ["cut", "changed", "nonsense", "a folder"])
def test_answers_that_are_damaged_are_asked_for_again(rehearse: Rehearse, answers: Path, damage: str) -> None:
    first = rehearse(CONVOLVE, gpu="a100-80gb")
    (file,) = answers.iterdir()
    good = file.read_bytes()
    if damage == "cut":
        file.write_bytes(good[: len(good) // 2])
    elif damage == "changed":
        file.write_bytes(good.replace(b" 0 ", b" 0 1"))
    elif damage == "nonsense":
        file.write_bytes(bytes(range(256)) * 10)
    else:
        file.unlink()
        file.mkdir()
    second = rehearse(CONVOLVE, gpu="a100-80gb")
    assert second.result["peak_reserved_bytes"] == first.result["peak_reserved_bytes"]
    assert second.result["workspaces"] == first.result["workspaces"]
    if damage != "a folder":
        assert set(good.split(b"\n")) <= set(file.read_bytes().split(b"\n"))


def test_rehearsals_at_the_same_time_share_the_file(rehearse: Rehearse, answers: Path) -> None:
    words = [sys.executable, "-m", "dryfit", "run", "--gpu", "a100-80gb", str(CONVOLVE)]
    with ThreadPoolExecutor(3) as pool:
        runs = list(pool.map(lambda _: subprocess.run(words, capture_output=True, text=True, timeout=250), range(3)))
    assert {run.returncode for run in runs} == {0}
    assert len({run.stdout for run in runs}) == 1
    (file,) = answers.iterdir()
    text = file.read_text()
    rehearse(CONVOLVE, gpu="a100-80gb")
    assert file.read_text() == text  # everything is in it, and whole


def test_a_program_without_convolutions_asks_nothing(rehearse: Rehearse, answers: Path) -> None:
    found = rehearse("import torch\ntorch.nn.Linear(64, 64).cuda()(torch.empty(8, 64, device='cuda')).sum().backward()")
    assert found.code == 0, found.stderr
    assert found.result["workspaces"]["plans"] == 0
    assert not answers.exists() or list(answers.iterdir()) == []


# ---- the process that answers ---------------------------------------------------------------------------------------
def test_it_ends_with_a_rehearsal_that_is_stopped(rehearse: Rehearse) -> None:
    found = rehearse(CONVOLVE, "8", "forever", gpu="a100-80gb", options=("--steps", "all", "--seconds", "8"))
    assert found.result["ending"]["how"] == "time limit"
    assert found.result["workspaces"]["plans"] > 0
    assert servers() == []


def test_it_ends_with_a_dryfit_that_is_killed() -> None:
    words = [
        sys.executable,
        "-m",
        "dryfit",
        "run",
        "--gpu",
        "a100-80gb",
        "--steps",
        "all",
        str(CONVOLVE),
        "8",
        "forever",
    ]
    running = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(True)
    finally:
        running.send_signal(signal.SIGKILL)
        running.wait()
    wait_until(False)


class Broken:
    """A process in place of the one that answers: it takes a question, and goes."""

    started = 0

    def __init__(self, oracle: Oracle, words: Sequence[str], variables: Mapping[str, str], descriptor: int) -> None:
        script = "import socket, sys; socket.socket(fileno=int(sys.argv[1])).accept()[0].recv(10)"
        self._process = subprocess.Popen(
            [sys.executable, "-c", script, words[-1]], pass_fds=[descriptor], stderr=subprocess.DEVNULL
        )
        type(self).started += 1

    def ended(self) -> bool:
        return self._process.poll() is not None

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def test_where_it_ends_midway_the_rest_counts_nothing_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "_InSandbox", Broken)
    Broken.started = 0
    found = dryfit.run([str(CONVOLVE)], gpu="a100-80gb", quiet=True)
    assert found.verdict == "fits"
    assert 1 <= Broken.started <= 3
    assert "The process that asks cuDNN for its plans ended; what it had not answered counts as 0 bytes." in found.notes
    (unknown,) = [each for each in found.unknowns if each.what == "workspaces of cuDNN's convolutions"]
    assert unknown.decides_size


def test_what_nobody_answers_may_take_as_much_as_its_three_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "oracle_for", lambda *_: Oracle(doubt="Nobody to ask."))

    def convolve() -> None:
        import torch

        convolution = torch.nn.Conv2d(64, 32, 3, padding=1, bias=False).to("cuda", torch.float16)
        convolution(torch.empty(8, 64, 56, 56, device="cuda", dtype=torch.float16))

    found = dryfit.run(convolve, gpu="rtx-4090", quiet=True)
    three_bytes = 2 * (8 * 64 * 56 * 56 + 32 * 64 * 3 * 3 + 8 * 32 * 56 * 56)
    assert (found.workspaces["not_answered"], found.workspaces["more_bytes"]) == (1, three_bytes)
    (part,) = [each for each in found.total_parts if each.what == "workspaces of convolutions"]
    assert (part.high_bytes, part.gives_way) == (three_bytes, True)
    assert (
        "One convolution takes no workspace here. One has been seen to take as much as input, weights and output "
        "together: up to 4.63 MiB more at the peak of tensors."
    ) in found.notes


def test_without_an_answer_it_is_as_before_and_why_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    doubt = "cuDNN 9.1.0 cannot be asked for plans without a card; 9.8 and later can."
    monkeypatch.setattr(child, "oracle_for", lambda *_: Oracle(doubt=doubt))
    found = dryfit.run([str(CONVOLVE)], gpu="a100-80gb", quiet=True)
    assert found.verdict == "fits"
    assert doubt in found.notes
    assert found.workspaces["plans"] == found.workspaces["not_answered"] > 0


def test_it_is_started_once_for_all_processes_of_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: Path
) -> None:
    starts: list[int] = []

    class Counted(plans._InSandbox):
        def __init__(self, *arguments: object) -> None:
            starts.append(1)
            super().__init__(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(plans, "_InSandbox", Counted)
    program = tmp_path / "several.py"
    program.write_text(
        textwrap.dedent(f"""
            import subprocess, sys
            running = [subprocess.Popen([sys.executable, {str(CONVOLVE)!r}, str(batch)]) for batch in (4, 5)]
            assert [each.wait() for each in running] == [0, 0]
        """)
    )
    found = dryfit.run([str(program)], gpu="a100-80gb", quiet=True, steps="all")
    assert found.ending.how == "finished"
    assert len(found.processes) == 2
    assert len(starts) == 1
    assert servers() == []


def test_warm_rehearsals_find_the_same(answers: Path) -> None:
    cold = {batch: dryfit.run([str(CONVOLVE), str(batch)], gpu="a100-80gb", quiet=True) for batch in (6, 7)}
    for file in answers.iterdir():
        file.unlink()
    with warm_rehearsals([str(CONVOLVE)], quiet=True) as rehearse_one:
        warm = {batch: rehearse_one([str(CONVOLVE), str(batch)], gpu="a100-80gb") for batch in (6, 7)}
    for batch, result in cold.items():
        assert warm[batch].peak_reserved_bytes == result.peak_reserved_bytes
        assert warm[batch].workspaces == result.workspaces
    assert servers() == []


def test_a_virtual_card_in_this_process_asks_too(tmp_path: Path, answers: Path) -> None:
    program = tmp_path / "notebook.py"
    program.write_text(
        textwrap.dedent(f"""
            import runpy
            import dryfit
            dryfit.virtual("a100-80gb")
            import torch
            runpy.run_path({str(CONVOLVE)!r})
            from dryfit.virtual_card import calls
            print(calls.workspaces_in_doubt().plans, calls.unfaithful_calls())
        """)
    )
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run(
        [sys.executable, program], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "8 {}\n"
    assert len(list(answers.iterdir())) == 1
    assert servers() == []


# ---- words ----------------------------------------------------------------------------------------------------------
def test_what_is_said_of_plans_that_were_timed() -> None:
    found = {"plans": 9, "less_bytes": 3 * MIB, "more_bytes": MIB, "timed": 2}
    assert workspaces.notes({"event": "end", "workspaces": found}, "") == [
        "2 convolutions take the plan that is fastest on a card (torch.backends.cudnn.benchmark), here cuDNN's first. "
        "With others the peak of tensors is up to 3.00 MiB lower or 1.00 MiB higher."
    ]
    (part,) = workspaces.parts(workspaces.of({"workspaces": found}), unused_bytes=100 * MIB)
    assert (part.low_bytes, part.expected_bytes, part.high_bytes) == (-6 * MIB, 0, 10 * MIB)
    assert part.gives_way
    (part,) = workspaces.parts(workspaces.of({"workspaces": found}), unused_bytes=MIB)
    assert part.low_bytes == -4 * MIB  # no less is reserved than tensors take


def test_a_lent_clock_is_said_where_it_was_used() -> None:
    assert workspaces.notes({"workspaces": {"plans": 1}}, "Lent.") == ["Lent."]
    assert workspaces.notes({"workspaces": {"plans": 0}}, "Lent.") == []
    assert workspaces.notes(None, "Lent.") == []


@pytest.mark.parametrize(
    ("what", "high_bytes", "is_apart"),
    [
        (workspaces.ON_A_CARD_ONLY, 90, False),
        (workspaces.TIMED, 100, False),
        (workspaces.ON_A_CARD_ONLY, 101, True),
        ("nonzero", 90, True),
    ],
)
def test_a_range_that_the_card_holds_whole_leaves_nothing_open(what: str, high_bytes: int, is_apart: bool) -> None:
    unknown = Unknown(kind="memory", what=what, answer="128 MiB", decides_size=True, count=1)
    result = dataclasses.replace(
        PLAIN_RESULT,
        card={"total_bytes": 100},
        peak_total_range_bytes={"low": 10, "expected": 20, "high": high_bytes},
        unknowns=[unknown],
    )
    assert result.is_apart_from_unknowns is is_apart

"""`dryfit plan` as a user starts it, with a few real rehearsals; tests/search has the search on simulated programs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import dryfit
from dryfit import cli
from dryfit.errors import UsageError

CARD = "sm=80,sms=108,memory=1700MiB"  # an A100's chip with little memory

# 64 Mi parameters: 256 MiB of them, of their gradients, and of each state; the peak is the optimizer's own copies.
PROGRAM = """
import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--fused", action="store_true")
given = parser.parse_args()
model = torch.nn.Sequential(*(torch.nn.Linear(4096, 4096) for _ in range(4))).cuda()
optimizer = torch.optim.AdamW(model.parameters(), **({"fused": True} if given.fused else {}))
for _ in range(100):
    model(torch.zeros(given.batch, 4096, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""

MakePlan = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    return folder


@pytest.fixture
def make_plan(project: Path, tmp_path: Path) -> MakePlan:
    """Run `dryfit plan` with these words in the project, with a cache of its own."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "dryfit", "plan", *words],
            capture_output=True, text=True, cwd=project, env=environment(tmp_path), timeout=280,
        )  # fmt: skip

    return run


def environment(folder: Path) -> dict[str, str]:
    variables = {name: value for name, value in os.environ.items() if name != "DRYFIT_GPU"}
    return variables | {"XDG_CACHE_HOME": str(folder / "cache")}


def test_where_the_peak_is_the_optimizer_step_fused_wins_and_a_smaller_batch_gives_nothing(
    make_plan: MakePlan, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is found is what a person gets who writes it; then once more, from the cache."""
    words = ("--gpu", CARD, "--batch", "8", "--only", "fused-optimizer,micro-batch", "--jobs", "2", "-o", "plan.json")
    words += ("train.py", "--batch", "{batch}")
    done = make_plan(*words)
    assert done.returncode == 0, done.stderr
    found = dryfit.Plan.load(project / "plan.json")
    assert (found.cheapest, found.surely) == (("fused-optimizer",), ("fused-optimizer",))
    assert found.as_it_is.phase == "optimizer step"
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"FITS with fused-optimizer on {found.card['name']}: needs ")
    assert lines[0].endswith("FLOPs +0.0 %, results stay the same")
    assert "The peak is in the optimizer step, when activations are gone: a smaller batch gives nothing" in lines[1]
    assert "    optimizer = torch.optim.AdamW(model.parameters(), ..., fused=True)" in lines

    monkeypatch.chdir(project)
    by_hand = dryfit.run(["train.py", "--fused"], gpu=CARD, quiet=True)
    cheapest = found.of(found.cheapest)
    assert cheapest is not None
    assert (by_hand.verdict, by_hand.peak_allocated_bytes) == ("fits", cheapest.peak_allocated_bytes)
    assert (by_hand.peak_reserved_bytes, by_hand.peak_total_bytes) == (
        cheapest.peak_reserved_bytes, cheapest.peak_total_bytes,
    )  # fmt: skip
    assert by_hand.phase_peaks == cheapest.phase_peaks

    again = make_plan("--json", *words)
    repeated = json.loads(again.stdout)
    assert (repeated["rehearsals"], repeated["from_cache"]) == (0, found.rehearsals)
    assert repeated["cheapest"] == ["fused-optimizer"]


def test_a_program_that_fails_otherwise_gets_its_own_error_and_no_plan(make_plan: MakePlan, project: Path) -> None:
    (project / "train.py").write_text("import torch\nraise ValueError('no data')\n")
    done = make_plan("--gpu", CARD, "train.py")
    assert done.returncode == 2
    assert done.stdout.splitlines()[0] == (
        "NO PLAN for NVIDIA sm_80 card given by hand: it fails, and not for memory: train.py failed before its first "
        f"optimiser step: ValueError: no data (train.py:2). `dryfit run --gpu {CARD} train.py` shows what it prints."
    )


def test_ctrl_c_ends_it(project: Path, tmp_path: Path) -> None:
    (project / "train.py").write_text(
        "import time\nopen('/tmp/' + __import__('os').environ['MARK'], 'w')\ntime.sleep(99)"
    )
    mark = f"dryfit-test-{os.getpid()}-{time.monotonic_ns()}"
    running = subprocess.Popen(
        [sys.executable, "-m", "dryfit", "plan", "--gpu", CARD, "train.py"],
        cwd=project, env=environment(tmp_path) | {"MARK": mark}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 30
        while not Path("/tmp", mark).exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert Path("/tmp", mark).exists(), "the program was not started"
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=20)
    finally:
        running.kill()
        Path("/tmp", mark).unlink(missing_ok=True)
    assert running.returncode == 130
    assert said.splitlines()[-1] == "dryfit: stopped by Ctrl-C."


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["train.py"], "A plan needs a card for the program to fit on: name one with --gpu"),
        (["--gpu", "t4"], "There is no program to run"),
        (["--gpu", "t4,l4", "train.py"], "A plan is for one card, and --gpu names 2: t4, l4. Name one of them."),
        (["--gpu", "t4", "--gpu", "l4", "train.py"], "A plan is for one card, and --gpu names 2: t4, l4."),
        (["--gpu", "t5000", "train.py"], "dryfit knows no card called 't5000'"),
        (["--gpu", "t4", "nothing.py"], "There is no file nothing.py"),
        (["--gpu", "t4", "--batch", "8", "train.py"], "--batch 8 has no place to go: no word of the program holds"),
        (["--gpu", "t4", "train.py", "{batch}"], "The program's words hold {batch}, and --batch does not say"),
        (["--gpu", "t4", "--only", "fused", "train.py"], "There is no measure 'fused'; there are "),
        (
            ["--gpu", "t4", "--only", "fused-optimizer", "--without", "fused-optimizer", "train.py"],
            "fused-optimizer is named in --only and in --without; it can be tried or left out, not both.",
        ),
        (["--gpu", "t4", "--reserve", "lots", "train.py"], "'lots' is not an amount of memory"),
        (["--gpu", "t4", "--world", "0", "train.py"], "--world 0: a world has 1 to 1048576 ranks, one for each card."),
        (
            ["--gpu", "t4", "--world", "8", "--nodes", "3", "train.py"],
            "--world 8 --nodes 3: 8 ranks cannot be shared out equally among 3 nodes",
        ),
        (["--gpu", "t4", "--nodes", "2", "train.py"], "--nodes says how many machines share a world: give its number"),
        (["--gpu", "t4", "-o", "/no/such/folder/x.json", "train.py"], "There is no folder to save"),
    ],
)
def test_bad_input_is_a_sentence_and_2(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DRYFIT_GPU", raising=False)
    assert cli.main(["plan", *words]) == UsageError.exit_code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines()[-1].startswith(f"dryfit: {sentence}")


def test_measures_of_many_cards_that_do_not_apply_say_why(make_plan: MakePlan) -> None:
    """A program for one card, asked for as one of two ranks."""
    names = "zero-redundancy-optimizer,fsdp-for-ddp,gradient-as-bucket-view,reshard-after-forward"
    done = make_plan("--gpu", CARD, "--world", "2", "--only", names, "train.py")
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("NOTHING FITS on NVIDIA sm_80 card given by hand in a world of 2: as it is it needs ")
    alone = "the program has one rank, and there is nobody to share the optimizer's states with"
    assert f"  zero-redundancy-optimizer: {alone}." in lines
    assert (
        "  gradient-as-bucket-view, fsdp-for-ddp: no model of the program is wrapped in DistributedDataParallel."
    ) in lines
    assert "  reshard-after-forward: no model of the program is sharded by FSDP2 (fully_shard)." in lines
    assert "The program made no process group, so that it is not one of 2 ranks:" in done.stdout

"""`dryfit fit` as a user starts it, with a few real rehearsals; tests/search has the search on simulated programs."""

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

CARD = "sm=80,sms=108,memory=8GiB"  # an A100's chip with little memory

PROGRAM = """
import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int)
batch = parser.parse_args().batch
model = torch.nn.Linear(1 << 18, 8, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(100):
    rows = torch.empty(batch * 100, 1 << 18, device="cuda")
    model(rows).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    del rows
"""

Fit = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    return folder


@pytest.fixture
def fit(project: Path, tmp_path: Path) -> Fit:
    """Run `dryfit fit` with these words in the project, with a cache of its own."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "dryfit", "fit", *words],
            capture_output=True, text=True, cwd=project, env=environment(tmp_path), timeout=280,
        )  # fmt: skip

    return run


def environment(folder: Path) -> dict[str, str]:
    variables = {name: value for name, value in os.environ.items() if name != "DRYFIT_GPU"}
    return variables | {"XDG_CACHE_HOME": str(folder / "cache")}


def test_what_fits_and_the_next_that_does_not_are_what_direct_rehearsals_say(
    fit: Fit, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 MiB a sample: the largest follows from the card; then once more, from the cache."""
    words = ("--gpu", CARD, "--vary", "batch=1..512", "-o", "found.json", "train.py", "--batch", "{batch}")
    done = fit(*words)
    assert done.returncode == 0, done.stderr
    found = dryfit.Fit.load(project / "found.json")
    answer = found.answers[0]
    room = answer.card["usable_bytes"]
    assert found.largest is not None
    assert found.largest == room // (100 << 20)  # of which a sample takes 100 MiB, and all else less than is left
    assert answer.beyond == found.largest + 1
    assert answer.law is not None
    assert answer.law.allocated is not None
    assert answer.law.allocated.per_sample_bytes == pytest.approx(100 << 20, abs=4096)
    assert done.stdout.startswith(f"LARGEST batch on {answer.card['name']}: {found.largest}, needs ")
    assert f"dryfit: batch {found.largest} on {CARD}: fits" in done.stderr

    monkeypatch.chdir(project)
    fits, does_not = (
        dryfit.run(["train.py", "--batch", str(batch)], gpu=CARD, quiet=True)
        for batch in (found.largest, found.largest + 1)
    )
    largest = answer.trial(found.largest)
    assert largest is not None
    assert (fits.ending.how, fits.peak_total_bytes) == ("steady", largest.peak_total_bytes)
    assert does_not.ending.how == "out of memory"

    again = fit("--json", *words)
    repeated = json.loads(again.stdout)
    assert (repeated["rehearsals"], repeated["from_cache"]) == (0, found.rehearsals)
    assert repeated["answers"][0]["largest"] == found.largest
    assert repeated["wall_seconds"] < 1


# 1 GiB of parameters, shared out among the ranks, and 25 MiB a sample.
SHARDED = """
import os, sys
import torch
from torch.distributed.fsdp import fully_shard

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.distributed.init_process_group("nccl")
if torch.distributed.get_world_size() == 3:
    raise ValueError("three ranks make no mesh")
model = torch.nn.Sequential(*(torch.nn.Linear(8192, 8192, bias=False) for _ in range(4)))
for layer in model:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(100):
    batch = torch.zeros(int(sys.argv[1]), 25 << 18, device="cuda")
    model(batch[:, :8192]).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_worlds_are_searched_as_direct_rehearsals_say(fit: Fit, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One card has no room for all parameters and gradients, the program refuses three, two hold some samples."""
    (project / "train.py").write_text(SHARDED)
    card = "sm=80,sms=108,memory=3GiB"
    words = ("--gpu", card, "--world", "1,2,3", "--effective", "96", "--vary", "batch=1..64", "-o", "found.json")
    done = fit(*words, "train.py", "{batch}")
    assert done.returncode == 0, done.stderr
    found = dryfit.Fit.load(project / "found.json")
    assert [(each.world, each.why_none) for each in found.answers] == [(1, "too big"), (2, None), (3, "failed")]
    assert f"{card}: the smallest world that fits is 2." in done.stdout.splitlines()
    assert f"dryfit run --gpu {card} --world 3 train.py 1` shows what it prints." in done.stdout
    answer = found.answers[1]
    largest, split = answer.trial(answer.largest), answer.effective
    assert largest is not None
    assert split is not None
    assert answer.largest is not None
    assert 48 % split.micro == 0
    assert split.micro <= answer.largest
    assert split.accumulation == 48 // split.micro

    monkeypatch.chdir(project)
    fits, does_not = (
        dryfit.run(["train.py", str(batch)], gpu=card, quiet=True, world=2)
        for batch in (answer.largest, answer.largest + 1)
    )
    assert (fits.ending.how, fits.peak_total_bytes) == ("steady", largest.peak_total_bytes)
    assert fits.communication == largest.communication
    assert does_not.ending.how == "out of memory"


def test_a_program_that_refuses_its_arguments_is_not_said_to_lack_memory(fit: Fit, project: Path) -> None:
    (project / "train.py").write_text("import argparse\nargparse.ArgumentParser().parse_args()\n")
    done = fit("--gpu", CARD, "train.py", "--batchsize", "{batch}")
    assert done.returncode == 2
    assert done.stdout.splitlines()[0] == (
        "NO ANSWER on NVIDIA sm_80 card given by hand: each batch tried (1, 4) fails, and not for memory: "
        "train.py ended with status 2. "
        f"`dryfit run --gpu {CARD} train.py --batchsize 1` shows what it prints."
    )


def test_ctrl_c_ends_it_and_everything_it_started(project: Path, tmp_path: Path) -> None:
    (project / "train.py").write_text(
        "import time\nopen('/tmp/' + __import__('os').environ['MARK'], 'w')\ntime.sleep(99)"
    )
    mark = f"dryfit-test-{os.getpid()}-{time.monotonic_ns()}"
    running = subprocess.Popen(
        [sys.executable, "-m", "dryfit", "fit", "--gpu", CARD, "train.py", "{batch}"],
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
    assert processes_with(mark) == []


def processes_with(mark: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["train.py", "{batch}"], "A search needs a card to fit on: name one or several with --gpu"),
        (["--gpu", "t4", "train.py", "--batch", "8"], "There is nothing to search: no word of the program holds a"),
        (["--gpu", "t4"], "There is nothing to search"),
        (["--gpu", "t4", "--vary", "batch", "train.py"], "--vary batch cannot be read; write a placeholder's name and"),
        (["--gpu", "t4", "--vary", "batch=", "train.py"], "--vary batch= cannot be read"),
        (
            ["--gpu", "t4", "--vary", "batch=1", "--vary", "batch=2", "train.py"],
            "--vary batch is given twice, as 1 and as 2; give all its values at once, with commas between: "
            "--vary batch=1,2",
        ),
        (
            ["--gpu", "t4", "--vary", "batch=1", "batch=2", "train.py", "{batch}"],
            "The program begins with batch=2: the shell has made several words of a range in braces.",
        ),
        (["--gpu", "t4", "--reserve", "lots", "train.py", "{batch}"], "'lots' is not an amount of memory"),
        (["--gpu", "t4", "-o", "/no/such/folder/x.json", "train.py", "{batch}"], "There is no folder to save"),
        (["--gpu", "t4", "--effective", "512", "--gpus", "0", "train.py", "{batch}"], "--gpus 0 is no number of cards"),
        (["--gpu", "t4,t5000", "train.py", "{batch}"], "dryfit knows no card called 't5000'"),
        (["--gpu", "t4", "nothing.py", "{batch}"], "There is no file nothing.py"),
        (["--gpu", "t4", "--world", "0", "train.py", "{batch}"], "--world 0: a world has 1 to 1048576 ranks"),
        (
            ["--gpu", "t4", "--world", "1,x", "train.py", "{batch}"],
            "--world 1,x: 'x' is no number of ranks; write numbers with commas between: 1,2,8",
        ),
        (["--gpu", "t4", "--world", "", "train.py", "{batch}"], "--world : '' is no number of ranks; write numbers"),
        (
            ["--gpu", "t4", "--world", "8", "--nodes", "3", "train.py", "{batch}"],
            "--world 8 --nodes 3: 8 ranks cannot be shared out equally among 3 nodes",
        ),
        (["--gpu", "t4", "--nodes", "3", "train.py", "{batch}"], "--nodes says how many machines share a world: give"),
        (
            ["--gpu", "t4", "--world", "128", "--nodes", "1", "train.py", "{batch}"],
            "--world 128 --nodes 1: a node would have 128 cards, and 64 is the most",
        ),
    ],
)
def test_bad_input_is_a_sentence_and_2(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DRYFIT_GPU", raising=False)
    assert cli.main(["fit", *words]) == UsageError.exit_code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines()[-1].startswith(f"dryfit: {sentence}")


def test_cards_are_named_with_commas_or_each_with_an_option(fit: Fit, project: Path) -> None:
    """And the machine has as many of each as --cards says."""
    (project / "train.py").write_text(
        "import sys, torch\nassert torch.cuda.device_count() == 2\ntorch.empty(int(sys.argv[1]) << 30, device='cuda')\n"
    )
    cards = ("--gpu", "t4,l4", "--gpu", "sm=80,sms=108,memory=4GiB")
    found = json.loads(fit("--json", *cards, "--cards", "2", "--vary", "gib=1,2", "train.py", "{gib}").stdout)
    assert [answer["gpu"] for answer in found["answers"]] == ["t4", "l4", "sm=80,sms=108,memory=4GiB"]
    assert [answer["largest"] for answer in found["answers"]] == [2, 2, None]  # GiB of 4 bytes each
    assert found["options"] == {"cards": 2}

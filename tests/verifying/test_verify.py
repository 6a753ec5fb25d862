"""Whole comparisons. The stand-in's figures are the rehearsal's, so any difference is a fault of the real side."""

from __future__ import annotations

import dataclasses
import getpass
import re
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from dryfit.cards import find_card
from dryfit.errors import UsageError
from dryfit.verifying import sides
from dryfit.verifying import verify as verifying
from dryfit.verifying.comparison import FAILED, OUT_OF_MEMORY, RAN, STOPPED, by_phase, by_step, peaks
from dryfit.verifying.real_card import cards_here
from dryfit.verifying.sides import HowToRun, run_for_real
from dryfit.verifying.verify import Verified, look
from dryfit.virtual_card.settings import settings_of

from .sides import CARD

TRAIN = """
    import torch

    device = "DEVICE"
    model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1024)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(6):
        loss = model(torch.randn(512, 1024, device=device)).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        EXTRA
"""


def training(extra: str = "pass", device: str = "cuda") -> str:
    return TRAIN.replace("EXTRA", extra).replace("DEVICE", device)


def equal_to_the_byte(verified: Verified) -> bool:
    real, virtual = verified.row.real, verified.row.virtual
    lines = [peaks(real, virtual), *by_step(real, virtual), *by_phase(real, virtual)]
    return real.figures == virtual.figures and all(
        pair.off_bytes == 0 for line in lines for pair in (line.allocated, line.reserved, line.total)
    )


@pytest.mark.parametrize(
    ("program", "count", "steps"),
    [
        (training(), 1, 3),
        # What was reserved at the peak has been given back when the card is asked.
        (training("torch.cuda.empty_cache()"), 1, 4),
        # Only a card that the program uses is asked.
        (training(device="cuda:1"), 2, 3),
    ],
    ids=["plain", "emptied", "second card"],
)
def test_with_a_stand_in_no_byte_differs(compare: Any, program: str, count: int, steps: int) -> None:
    verified = compare(program, count=count)
    row = verified.row
    assert equal_to_the_byte(verified), (row.real, row.virtual)
    assert (row.real.outcome, row.virtual.outcome, verified.exit_code) == (RAN, RAN, 0)
    assert row.real.steps == row.virtual.steps == steps
    assert [line.name for line in by_step(row.real, row.virtual)][: steps + 1] == [
        "setup", *(f"step {number}" for number in range(1, steps + 1)),
    ]  # fmt: skip
    assert {"forward", "backward", "optimizer step"} <= {line.name for line in by_phase(row.real, row.virtual)}
    assert (row.card.name, row.card.count, row.card.is_virtual, row.twin) == ("NVIDIA L4", count, True, "l4")
    assert row.real.peak_total_bytes is not None
    assert row.real.peak_total_bytes > row.real.peak_reserved_bytes > row.real.peak_allocated_bytes > 0
    low, high = row.virtual_total_range["low"], row.virtual_total_range["high"]
    assert low <= row.real.peak_total_bytes <= high
    assert verified.real_ending.sentence == f"Stopped after {steps} optimiser steps, as asked."


def test_a_program_without_steps_runs_to_its_end(compare: Any) -> None:
    verified = compare("import torch\nx = torch.zeros(1 << 20, device='cuda')")
    assert equal_to_the_byte(verified)
    assert verified.row.real.peak_allocated_bytes == 4 << 20
    assert verified.real_ending.sentence == "train.py ran to its end without an optimiser step."


def test_steps_can_be_asked_for(compare: Any) -> None:
    assert compare(training(), steps=2).row.real.steps == 2
    assert compare(training(), steps="all").row.real.steps == 6


def test_both_run_out_of_memory(compare: Any) -> None:
    verified = compare(training(), gpu="sm=80,sms=108,memory=600MiB")
    assert equal_to_the_byte(verified)
    assert (verified.row.real.outcome, verified.row.virtual.outcome) == (OUT_OF_MEMORY, OUT_OF_MEMORY)
    assert (verified.row.real.error_type, verified.exit_code) == ("OutOfMemoryError", 0)
    assert verified.row.twin == "by hand"


def test_only_the_card_runs_out_of_memory(compare: Any) -> None:
    verified = compare(training(), gpu="sm=80,sms=108,memory=600MiB", twin="a100-40gb")
    assert (verified.row.real.outcome, verified.row.virtual.outcome) == (OUT_OF_MEMORY, RAN)
    assert verified.exit_code == 1


@pytest.mark.parametrize("fails_on", ["L4", "T4", "NVIDIA"])
def test_a_program_that_fails_on_one_or_both(compare: Any, fails_on: str) -> None:
    fails = f"""
        import torch

        x = torch.zeros(1 << 20, device="cuda")
        if "{fails_on}" in torch.cuda.get_device_name().replace("Tesla", "NVIDIA"):
            raise ValueError("a secret of mine")
    """
    verified = compare(fails, gpu="l4", twin="t4")
    row = verified.row
    assert row.real.outcome == (RAN if fails_on == "T4" else FAILED)
    assert row.virtual.outcome == (RAN if fails_on == "L4" else FAILED)
    assert verified.exit_code == (2 if fails_on == "NVIDIA" else 1)
    assert row.real.error_type == (None if fails_on == "T4" else "ValueError")
    assert "a secret of mine" not in row.to_json()  # messages can have anything in them
    ending = verified.virtual_ending if fails_on == "T4" else verified.real_ending
    assert "ValueError: a secret of mine" in ending.sentence


def test_nothing_private_is_in_a_row(compare: Any, tmp_path: Path) -> None:
    verified = compare(training(), "--out", str(tmp_path), f"--user={getpass.getuser()}")
    text = verified.row.to_json()
    assert verified.row.program[:2] == ["train.py", "--out"]
    assert socket.gethostname() not in text
    assert str(tmp_path) not in text
    assert not re.search(r'["\s=]/\w', text)
    assert getpass.getuser() not in " ".join(verified.row.program)
    assert re.fullmatch("[0-9a-f]{64}", verified.row.source_sha256)
    assert {"dryfit", "python", "torch", "cuda", "cudnn"} <= set(verified.row.versions)


def test_for_real_too_writes_are_thrown_away_and_no_exit_handler_runs(compare: Any) -> None:
    keeps = training("torch.save(model.state_dict(), 'model.pt'); open('log.txt', 'a').write('a step')")
    at_exit = "    import atexit, pathlib\n    atexit.register(lambda: pathlib.Path('exit.txt').write_text('here'))\n"
    assert compare(f"{at_exit}{keeps}").exit_code == 0
    assert [path.name for path in Path.cwd().iterdir() if path.is_file()] == ["train.py"]


def test_only_the_real_run_may_be_let_write(compare: Any) -> None:
    keeps = training("open('log.txt', 'a').write(torch.cuda.get_device_name() + '\\n')")
    assert compare(keeps, twin="t4", allow_writes=True).exit_code == 0
    assert set(Path("log.txt").read_text().splitlines()) == {"NVIDIA L4"}


def test_a_time_limit_of_the_real_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("import time, torch\nx = torch.zeros(8, device='cuda')\ntime.sleep(100)\n")
    stand_in = settings_of(find_card("l4"))
    run = run_for_real(["train.py"], CARD, steps=None, how=HowToRun(seconds=3, quiet=True), stand_in=stand_in)
    assert run.side.outcome == STOPPED
    assert run.ending.sentence == (
        "train.py was stopped before its first optimiser step, at the limit of 3 seconds; --seconds sets another."
    )


def test_a_driver_that_cannot_be_reached_from_the_sandbox(compare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sides, "ASK", (sys.executable, "-c", """print('{"problem": "no card", "reason": ""}')"""))
    with pytest.raises(UsageError) as raised:
        compare(training())
    assert str(raised.value) == (
        "The driver answers here, and not from within the sandbox that the program runs in: no card. Nothing was run; "
        "please report it with what `dryfit doctor` prints; with --allow-writes the program may reach it, and its "
        "files are real."
    )
    monkeypatch.setattr(sides, "ASK", (sys.executable, "-c", "raise SystemExit(1)"))
    with pytest.raises(UsageError, match=r"runs in: no answer\. Nothing was run; please report"):
        compare(training(), allow_writes=True)


def test_a_rehearsal_that_comes_to_nothing_is_not_run_for_real(compare: Any) -> None:
    with pytest.raises(UsageError) as raised:
        compare("print(1)")
    assert str(raised.value) == (
        "In the rehearsal, train.py ended without importing torch, so there is nothing to measure. Nothing was run for "
        "real."
    )


def test_a_machine_without_a_driver() -> None:
    try:
        cards_here()
    except UsageError as error:
        assert "`dryfit verify` compares with a real card; `dryfit run` needs none." in str(error)
    else:
        pytest.skip("this machine has a card")


def test_a_torch_without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    from dryfit.virtual_card import TorchBuild

    build = TorchBuild(version="2.14.1+cpu", cuda=None, cudnn=None, folder=Path("/site/torch"))
    monkeypatch.setattr(verifying, "installed_torch", lambda: build)
    with pytest.raises(UsageError, match=r"^The installed torch 2\.14\.1\+cpu \(/site/torch\) is a CPU-only build\."):
        look()


def test_a_card_that_others_have_filled_and_one_that_is_virtual(monkeypatch: pytest.MonkeyPatch) -> None:
    full = dataclasses.replace(CARD, cuda="99.0", used_before_bytes=CARD.total_bytes - (100 << 20))
    monkeypatch.setattr(verifying, "cards_here", lambda variables: full)
    with pytest.raises(UsageError) as raised:
        look()
    assert str(raised.value) == (
        "Other programs hold 21.94 GiB of the card's 22.03 GiB, which leaves no room for this one; `nvidia-smi` lists "
        "them. Wait until they are gone, or choose another card with CUDA_VISIBLE_DEVICES."
    )
    monkeypatch.setattr(verifying, "cards_here", lambda variables: dataclasses.replace(full, is_virtual=True))
    with pytest.raises(UsageError) as raised:
        look()
    assert str(raised.value) == (
        "The card of this machine, NVIDIA L4, is a virtual one: dryfit's library is in front of CUDA's (LD_PRELOAD). "
        "Start `dryfit verify` without it, on a machine with a real card."
    )

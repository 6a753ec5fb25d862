"""Programs end cleanly, whatever their threads and children were doing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from .conftest import PROGRAMS, Card


@pytest.mark.parametrize("attempt", range(4))
def test_ending_right_after_a_backward_pass(card: Card, attempt: int) -> None:
    """Without c/ending.c six in ten of these died; see there."""
    done = card.run("ending.py", "backward")
    assert "terminate called" not in done.stderr
    assert done.code == 0


@pytest.mark.parametrize("kind", ["loader", "nccl", "spawn", "fork"])
def test_ending_with_threads_and_children(card: Card, kind: str) -> None:
    done = card.run("ending.py", kind)
    assert "terminate called" not in done.stderr
    assert done.code == 0, done.stderr


def test_ending_of_a_process_that_took_the_card_itself() -> None:
    program = f"""
from dryfit.virtual_card import CardSettings, in_front, put_in_front
assert not in_front()
put_in_front(CardSettings(name="NVIDIA A100", sm=80, sms=108, memory_bytes=8 << 30))
assert in_front()
import os, subprocess, sys, torch
assert torch.cuda.get_device_name() == "NVIDIA A100"
child = "import torch; print(torch.cuda.get_device_name())"
assert subprocess.run([sys.executable, "-c", child], capture_output=True, text=True).stdout == "NVIDIA A100\\n"
sys.argv = ["ending.py", "backward"]
exec(open({str(PROGRAMS / "ending.py")!r}).read())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert "terminate called" not in done.stderr
    assert done.returncode == 0, done.stderr

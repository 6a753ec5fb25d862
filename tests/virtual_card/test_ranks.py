"""NCCL: real ranks tell each other small things, one rank alone plays all of them, and no wait is for ever."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dryfit.virtual_card import CardSettings, environment

from .conftest import GIB, PROGRAMS, Card


def start_ranks(program: str, *arguments: str, world: int, **settings: Any) -> list[subprocess.Popen[str]]:
    """One process for each rank, as a launcher starts them."""
    card = CardSettings(name="NVIDIA A100", sm=80, sms=108, memory_bytes=8 * GIB, count=world, **settings)
    port = 20000 + os.getpid() % 30000
    ranks = []
    for rank in range(world):
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        variables = os.environ | environment(card) | {name: str(value) for name, value in place.items()}
        command = [sys.executable, str(PROGRAMS / program), *arguments]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        ranks.append(subprocess.Popen(command, env=variables, text=True, **pipes))  # type: ignore[call-overload]
    return ranks


@pytest.fixture(scope="module")
def two_ranks() -> list[dict[str, Any]]:
    finished = [rank.communicate(timeout=120) for rank in start_ranks("ranks.py", "objects", world=2)]
    return [json.loads(stdout.splitlines()[-1]) for stdout, _ in finished]


def test_two_real_ranks_reduce_and_gather(two_ranks: list[dict[str, Any]]) -> None:
    for rank, said in enumerate(two_ranks):
        for kind in ("float", "bfloat16", "half", "long"):
            assert said[f"sum_{kind}"] == [3, 20]
        assert (said["max"], said["average"]) == (2, 6)
        assert said["gathered"] == [0, 1]
        assert said["scattered"] == 2 * rank
        assert said["exchanged"] == [rank, 10 + rank]


def test_two_real_ranks_exchange_objects_and_messages(two_ranks: list[dict[str, Any]]) -> None:
    for rank, said in enumerate(two_ranks):
        assert said["objects"] == [0, 1]
        assert said["broadcast"] == 1
        assert said["received"] == [100 * (1 - rank) + i for i in range(6)]


@pytest.mark.parametrize("rank", [0, 3])
def test_one_rank_alone_plays_a_world_of_equals(card: Card, rank: int) -> None:
    place = {"RANK": str(rank), "WORLD_SIZE": "4"}
    said = card.run("ranks.py", "small", "alone", variables=place, alone=True).said
    assert said["sum_float"] == said["sum_bfloat16"] == said["sum_long"] == [4 * (rank + 1), 40]
    assert said["average"] == 4 * (rank + 1)
    assert said["gathered"] == [rank] * 4
    assert said["scattered"] == 4 * rank
    assert said["exchanged"] == [11 * rank] * 4  # what it sends to itself, the others send to it
    assert said["from_nobody"] == 0
    assert set(said["unfaithful"]) == {"ncclRecv"}


def test_a_rank_that_died_is_named_at_once(tmp_path: Path) -> None:
    began = time.monotonic()
    survivor, dead = start_ranks("missing_rank.py", "dies", world=2)
    _, stderr = survivor.communicate(timeout=60)  # the other one is not waited for: it is a zombie meanwhile
    assert "rank 0 waits for rank 1, whose process has ended; look at that rank's output" in stderr
    assert survivor.returncode != 0
    assert time.monotonic() - began < 30
    dead.communicate(timeout=60)
    assert dead.returncode == 3


def test_a_rank_that_never_comes_is_named_after_the_wait() -> None:
    waiting, elsewhere = start_ranks("missing_rank.py", "stays_away", world=2, wait_seconds=2)
    _, stderr = waiting.communicate(timeout=60)
    assert "rank 0 of 2 has waited 2 seconds for the other ranks of an NCCL communicator; missing: 1." in stderr
    assert "alone=1 in DRYFIT_VIRTUAL_CARD" in stderr
    assert waiting.returncode != 0
    elsewhere.communicate(timeout=60)


def test_ranks_meet_whatever_signals_come_and_whoever_is_at_the_door(card: Card) -> None:
    assert card.run("meeting.py", timeout=60).said == {"status": [0, 0], "signals": True}


def test_nothing_stays_in_shared_memory(two_ranks: list[dict[str, Any]]) -> None:
    names = [path.name for path in Path("/dev/shm").iterdir() if not path.name.startswith("dryfit-kernels")]
    assert [name for name in names if "dryfit" in name] == []

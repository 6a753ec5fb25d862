"""Growth of the host's memory: told from a warm-up, from ups and downs, and from what a card's loop does not show."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from dryfit.findings import Finding
from dryfit.watching.kinds import allocator
from dryfit.watching.situation import Situation

MIB = 1 << 20


def found_in(monkeypatch: pytest.MonkeyPatch, resident: Callable[[int], float], *, steps: int) -> list[Finding]:
    """What is found where so many MiB are resident at the end of each step."""
    kind = allocator.Allocator(Situation(), is_live=True)
    for step in range(1, steps + 1):
        now_bytes = int(resident(step) * MIB)
        monkeypatch.setattr(allocator, "resident_bytes", lambda: now_bytes)  # noqa: B023
        kind.step_is_over(step, None)
    return kind.found


def test_samples_that_are_cached_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    [found] = found_in(monkeypatch, lambda step: 500 + 0.25 * step, steps=130)
    assert found.code == "DF115"
    assert found.evidence.memory == "host"
    assert found.evidence.bytes_per_step == MIB // 4
    assert found.evidence.size_bytes == 25 * MIB
    assert (found.evidence.first_step, found.evidence.last_step) == (25, 125)
    assert found.claim == (
        "The host's memory of this process has grown by 25.00 MiB over 100 steps, about 256.00 KiB a step, and in each "
        "25 of them."
    )


@pytest.mark.parametrize(
    "resident",
    [
        lambda step: 500 + 10 * min(step, 60),  # a warm-up: what compilers, workers and caches take once
        lambda step: 500 + 200 * (step // 90),  # an epoch's end
        lambda step: 500 + random.Random(step).random() * 300,  # ups and downs
        lambda step: 500 + (step % 40) * 5,  # gathered, and let go of
        lambda step: 900 - step,
    ],
    ids=["warm-up", "epochs", "ups and downs", "gathered and let go", "falls"],
)
def test_what_is_no_growth(monkeypatch: pytest.MonkeyPatch, resident: Callable[[int], float]) -> None:
    assert found_in(monkeypatch, resident, steps=400) == []


def test_it_is_told_again_only_after_as_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(found_in(monkeypatch, lambda step: 500 + step, steps=249)) == 1
    assert len(found_in(monkeypatch, lambda step: 500 + step, steps=250)) == 2

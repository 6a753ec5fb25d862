"""The cheap signs by which a rehearsal chooses when to look closely."""

from __future__ import annotations

import pytest
import torch

from dryfit.watching.signs import Signs


def steps(signs: Signs, keeps: str, count: int = 5) -> list[bool]:
    """Train on the host, and say after each step whether something stays."""
    model = torch.nn.Linear(4, 4)
    kept: list[torch.Tensor] = []
    total = torch.zeros(())
    found = []
    for _ in range(count):
        output = model(torch.ones(2, 4))
        signs.graph_of({"logits": output, "past": None})
        loss = output.sum()
        signs.graph_of((loss,))
        loss.backward()
        if keeps == "loss":
            total = total + loss
        elif keeps == "outputs":
            kept.append(output)
        elif keeps == "numbers":
            total = total + loss.detach()
        signs.step_is_over()
        found.append(signs.something_stays)
    return found


@pytest.mark.parametrize("keeps", ["loss", "outputs"])
def test_a_graph_that_lives_longer_than_the_next_step_is_a_sign(keeps: str) -> None:
    assert steps(Signs(), keeps) == [False, True, True, True, True]


@pytest.mark.parametrize("keeps", ["nothing", "numbers"])
def test_the_graph_of_the_last_step_alone_is_none(keeps: str) -> None:
    signs = Signs()
    assert steps(signs, keeps) == [False] * 5
    assert [step for step in range(1, 20) if signs.may_take_census(step)] == [2, 3]


def test_more_memory_than_a_step_ago_is_a_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    held = iter([7 << 20, 7 << 20, 8 << 20, 8 << 20, 6 << 20])
    monkeypatch.setattr("dryfit.watching.signs.allocated_bytes", lambda: next(held))
    signs, found = Signs(), []
    for _ in range(5):
        signs.step_is_over()
        found.append(signs.something_stays)
    assert found == [False, False, True, False, False]


def test_what_a_model_gives_is_not_run_through() -> None:
    batches = iter([torch.ones(2), torch.zeros(2)])
    Signs().graph_of(batches)
    assert next(batches).tolist() == [1, 1]

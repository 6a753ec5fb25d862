"""offload-optimizer: as the optimizer that its snippet shows, which updates as torch's AdamW does."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch
from tests.measures.conftest import figures

from dryfit.measures import states_on_host
from dryfit.measures.facts import Facts, ModelFacts, OptimizerFacts
from dryfit.measures.offload_optimizer import MEASURES

(MEASURE,) = MEASURES
BY_HAND = Path(__file__).parent / "programs" / "optimizer_on_host.py"
ADAM = OptimizerFacts(kind="torch.optim.adam.Adam", parameters=8, tensors=1)


def test_is_as_written_by_hand(assert_same_bytes) -> None:
    switched, plain = assert_same_bytes("language_model", ["offload-optimizer"], "optimizer_on_host")
    assert switched.phase_peaks["forward"] < plain.phase_peaks["forward"]
    assert switched.phase_peaks["optimizer step"] < plain.phase_peaks["optimizer step"]


def test_with_groups_a_schedule_and_a_scaler(rehearse) -> None:
    switched = rehearse("optimizer_groups", measures=["offload-optimizer"])
    assert switched.measures == {"offload-optimizer": True}
    assert figures(switched) == figures(rehearse("optimizer_groups", "host"))


def test_adam_with_a_closure(rehearse) -> None:
    switched = rehearse("optimizer_closure", measures=["offload-optimizer"])
    assert figures(switched) == figures(rehearse("optimizer_closure", "host"))


def test_of_transformers_trainer(rehearse_stack) -> None:
    switched = rehearse_stack("optimizer_trainer", measures=["offload-optimizer"])
    assert switched.measures == {"offload-optimizer": True}
    assert switched.ending.how in ("steady", "finished")
    assert figures(switched) == figures(rehearse_stack("optimizer_trainer", "{}", "on host"))


def test_the_program_by_hand_has_what_the_snippet_shows() -> None:
    shown = inspect.getsource(states_on_host.StatesOnHost)
    assert shown in MEASURE.snippet("pytorch")
    assert shown in BY_HAND.read_text()


def test_updates_as_torchs_adamw_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU, where states move nowhere; a schedule, groups and a parameter without a gradient included."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    empty_like = torch.empty_like
    monkeypatch.setattr(torch, "empty_like", lambda *args, pin_memory, **kwargs: empty_like(*args, **kwargs))
    ours, theirs = (_trained(kind) for kind in (states_on_host.OffloadedAdamW, torch.optim.AdamW))
    for one, other in zip(ours, theirs, strict=True):
        assert torch.equal(one, other)


def _trained(kind: type[torch.optim.Optimizer]) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 4), torch.nn.Linear(4, 4))
    groups = [
        {"params": [model[0].weight, model[1].weight], "weight_decay": 0.5},
        {"params": [model[0].bias, model[1].bias, *model[2].parameters()], "lr": 0.1},
    ]
    optimizer = kind(groups, lr=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))
    for _ in range(4):
        optimizer.zero_grad()
        model[:2](torch.randn(3, 8)).square().sum().backward()
        optimizer.step()
        schedule.step()
    assert len(optimizer.state) == 4
    return list(model.parameters())


def test_applies_to_torchs_adam_and_adamw() -> None:
    other = OptimizerFacts(kind="torch.optim.sgd.SGD", parameters=8, tensors=1)
    sharded = ModelFacts(kind="train.Model", parameters=8, trainable=8, is_distributed="FSDP2")
    assert MEASURE.why_not(Facts(optimizers=(ADAM,))) == ""
    assert MEASURE.why_not(Facts(optimizers=(other,))) == (
        "the program's optimizer is SGD, and this stands in for torch.optim's Adam and AdamW"
    )
    assert MEASURE.why_not(Facts(optimizers=(ADAM,), models=(sharded,))) == (
        "FSDP2 keeps states on the host itself: fully_shard(..., offload_policy=CPUOffloadPolicy())"
    )
    assert MEASURE.changes(Facts(optimizers=(ADAM,))) == "nothing"


@pytest.mark.parametrize("way", ["pytorch", "transformers", "lightning"])
def test_snippets_are_whole_programs_but_for_the_model(way: str) -> None:
    compile(MEASURE.snippet(way).replace("return ", "_ = "), "<snippet>", "exec")

"""What a window's step does with optimizers, a scaler, a schedule, and gradients in bf16."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tests.train.language import batches_of, difference, language_model, loss_of
from tests.train.loops import still
from torch import nn

from dryfit.train.accumulation import accumulate


class Calls(torch.amp.GradScaler):
    """Writes down the order of calls."""

    def __init__(self, log: list[str], **rest: Any) -> None:
        super().__init__("cpu", **rest)
        self.log = log

    def scale(self, outputs: Any) -> Any:
        self.log.append("scale")
        return super().scale(outputs)

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        self.log.append("unscale")
        super().unscale_(optimizer)

    def step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        self.log.append("step")
        return super().step(optimizer, *args, **kwargs)

    def update(self, new_scale: Any = None) -> None:
        self.log.append("update")
        super().update(new_scale)


def test_the_calls_come_in_the_one_right_order(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    model = language_model()
    parameters = list(model.parameters())
    optimizers = [torch.optim.SGD(parameters[:3], lr=0.1), torch.optim.AdamW(parameters[3:], lr=0.1)]
    clip = nn.utils.clip_grad_norm_
    monkeypatch.setattr(
        nn.utils, "clip_grad_norm_", lambda *given: (log.append(f"clip {len(given[0])}"), clip(*given))[1]
    )
    for optimizer in optimizers:
        zero = optimizer.zero_grad
        optimizer.zero_grad = lambda set_to_none, zero=zero: (log.append("clear"), zero(set_to_none))[1]  # type: ignore[method-assign]
    schedulers = [torch.optim.lr_scheduler.LambdaLR(each, lambda step: 1 / (step + 1)) for each in optimizers]
    for scheduler in schedulers:
        step = scheduler.step
        scheduler.step = lambda step=step: (log.append("schedule"), step())[1]  # type: ignore[method-assign]
    for window in accumulate(
        batches_of(10, 10), model, optimizers, steps=2, clip_norm=1.0, scaler=Calls(log), scheduler=schedulers
    ):
        for batch in window:
            window.backward(loss_of(model, batch))
        log.append("|")
        window.step()
    assert " ".join(log) == "scale scale | unscale unscale clip 7 step step update clear clear schedule schedule"
    assert all(parameter.grad is None for parameter in parameters)
    assert [group["lr"] for each in optimizers for group in each.param_groups] == [0.05, 0.05]


def test_a_step_that_the_scaler_skips_is_no_step_of_the_schedule() -> None:
    model = language_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    before = [each.detach().clone() for each in model.parameters()]
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    found = []
    for window in accumulate(
        batches_of(9, 9, 9, 9), model, optimizer, steps=2, scaler=scaler, scheduler=schedule, clip_norm=1.0
    ):
        for batch in window:
            window.backward(loss_of(model, batch) * (math.inf if window.index == 0 else 1))
        window.step()
        moved = any(not one.equal(other) for one, other in zip(before, model.parameters(), strict=True))
        found.append((window.stepped, moved, schedule.last_epoch, scaler.get_scale()))
    assert found == [(False, False, 0, 2.0**9), (True, True, 1, 2.0**9)]


def test_bf16_gradients_are_summed_in_fp32_on_request() -> None:
    torch.manual_seed(0)
    model = nn.Linear(64, 64, bias=False).bfloat16()
    batches = [torch.randn(4, 64).bfloat16() for _ in range(64)]

    def gradient(fp32: bool) -> torch.Tensor:
        optimizer, taken = still(model)
        for window in accumulate(batches, model, optimizer, steps=64, fp32_gradients=fp32, clip_norm=1e9):
            for batch in window:
                window.backward(model(batch).float().square().mean())
            window.step()
        assert model.weight.grad is None
        return taken.gradients[0][0]

    exact = torch.zeros(64, 64, dtype=torch.float64)
    for batch in batches:
        model.zero_grad()
        (model(batch).float().square().mean() / 64).backward()
        exact += model.weight.grad.double()
    model.zero_grad()
    rounded = exact.to(torch.bfloat16)
    assert (gradient(True) - rounded).abs().max() / rounded.abs().max() <= 2**-8
    assert (gradient(False) - rounded).abs().max() / rounded.abs().max() > 2**-8
    optimizer, _ = still(model)
    described = accumulate(batches, model, optimizer, steps=64, fp32_gradients=True).describe()
    assert described == (
        "64 micro-batches on 1 rank make one optimizer step. Gradients are summed in fp32, 16.00 KiB during a window."
    )


def test_layers_that_are_unfrozen_between_epochs_are_summed_in_fp32_too() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1)).bfloat16()
    model[0].requires_grad_(False)
    optimizer, taken = still(model)
    accumulation = accumulate([torch.ones(2, 4).bfloat16()] * 2, model, optimizer, steps=2, fp32_gradients=True)
    for trainable, size in ((2, "20 B"), (4, "100 B")):
        for window in accumulation:
            for batch in window:
                window.backward(model(batch).float().mean())
                assert all(parameter.grad is None for parameter in model.parameters())  # each is in its sum
            window.step()
        assert len(taken.gradients[-1]) == trainable
        assert accumulation.describe().endswith(f"Gradients are summed in fp32, {size} during a window.")
        model[0].requires_grad_(True)


@pytest.mark.parametrize("clip_norm", [math.inf, 0.01])
def test_sparse_gradients_are_summed_and_clipped(clip_norm: float) -> None:
    torch.manual_seed(0)
    model = nn.EmbeddingBag(10, 3, sparse=True)
    words = torch.randint(10, (4, 2, 3))
    model(words.flatten(0, 1)).square().mean().backward()
    expected = model.weight.grad.to_dense()
    model.zero_grad()
    optimizer, taken = still(model)
    for window in accumulate(words, model, optimizer, steps=4, clip_norm=clip_norm):
        for batch in window:
            window.backward(model(batch).square().mean())
        window.step()
    norm = float(expected.norm())
    assert norm > 0.01
    clipped = expected * min(1.0, clip_norm / norm)
    assert difference([taken.gradients[0][0].to_dense()], [clipped]) <= 1e-4  # PyTorch divides by the norm + 1e-6
    assert float(window.gradient_norm) == pytest.approx(norm, rel=1e-6)

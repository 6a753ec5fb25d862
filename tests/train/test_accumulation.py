"""`accumulate` gives the gradient of the large batch, and the known wrong ways do not."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import pytest
import torch
from tests.train.language import (
    Batch,
    batches_of,
    count_tokens,
    difference,
    gradients_of,
    joined,
    language_model,
    loss_of,
    summed_loss_of,
    whole_gradients,
)
from tests.train.loops import EQUAL, run, sizes, still, walked
from torch import nn

from dryfit.train.accumulation import accumulate
from dryfit.train.warning_classes import BatchNormWarning

UNEQUAL = (100, 10, 37, 64, 100, 10, 3)  # tokens of each micro-batch; with 3 steps the last window has one


# Equal to the large batch


@pytest.mark.parametrize("clip_norm", [None, 0.05])
def test_unequal_tokens_and_a_short_last_window_equal_the_large_batch(clip_norm: float | None) -> None:
    batches = batches_of(*UNEQUAL)
    taken = run(batches, steps=3, items=count_tokens, clip_norm=clip_norm)
    assert len(taken.gradients) == 3
    for at, gradients in enumerate(taken.gradients):
        assert difference(gradients, whole_gradients(batches[3 * at : 3 * at + 3], clip_norm)) <= EQUAL


def test_sums_are_divided_by_all_items_of_the_window() -> None:
    batches = batches_of(100, 10)
    taken = run(batches, steps=2, items=count_tokens, loss=summed_loss_of, reduction="sum")
    assert difference(taken.gradients[0], whole_gradients(batches)) <= EQUAL


def test_sums_without_items_are_divided_by_nothing() -> None:
    batches = batches_of(100, 10)
    taken = run(batches, steps=2, loss=summed_loss_of, reduction="sum")
    assert difference(taken.gradients[0], [110 * each for each in whole_gradients(batches)]) <= EQUAL


def test_means_over_equal_batches_are_divided_by_the_real_number_of_them() -> None:
    batches = batches_of(50, 50, 50)
    taken = run(batches, steps=2)
    assert difference(taken.gradients[0], whole_gradients(batches[:2])) <= EQUAL
    assert difference(taken.gradients[1], whole_gradients(batches[2:])) <= EQUAL


def test_a_grad_scaler_changes_nothing_and_clipping_sees_unscaled_gradients() -> None:
    batches = batches_of(100, 10)
    taken = run(batches, steps=2, items=count_tokens, clip_norm=0.05, scaler=torch.amp.GradScaler("cpu"))
    assert difference(taken.gradients[0], whole_gradients(batches, 0.05)) <= EQUAL


def test_works_under_autocast() -> None:
    batches = batches_of(100, 10)

    def in_bf16(model: nn.Module, batch: Batch) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return loss_of(model, batch)

    model = language_model()
    in_bf16(model, joined(batches)).backward()
    taken = run(batches, steps=2, items=count_tokens, loss=in_bf16)
    assert difference(taken.gradients[0], gradients_of(model)) <= 0.02


def test_a_window_knows_its_loss_norm_and_items() -> None:
    batches = batches_of(100, 10)
    model = language_model()
    optimizer, _ = still(model)
    (window,) = windows = list(
        walked(accumulate(batches, model, optimizer, steps=4, items=count_tokens, clip_norm=math.inf), model)
    )
    assert len(windows) == 1 and len(window) == 2 and window.items == 110 and window.index == 0
    assert window.stepped
    assert float(window.loss) == pytest.approx(float(loss_of(model, joined(batches)).detach()), rel=1e-6)
    whole = torch.cat([each.flatten() for each in whole_gradients(batches)])
    assert float(window.gradient_norm) == pytest.approx(float(whole.norm()), rel=1e-6)


# The known wrong ways, by the same comparison


def _undivided(model: nn.Module, batches: list[Batch], optimizer: torch.optim.Optimizer) -> None:
    for batch in batches:
        loss_of(model, batch).backward()
    optimizer.step()


def _divided_by_steps_asked_for(model: nn.Module, batches: list[Batch], optimizer: torch.optim.Optimizer) -> None:
    for batch in batches:
        (loss_of(model, batch) / 4).backward()
    optimizer.step()


def _mean_of_means(model: nn.Module, batches: list[Batch], optimizer: torch.optim.Optimizer) -> None:
    for batch in batches:
        (loss_of(model, batch) / len(batches)).backward()
    optimizer.step()


def _clipped_before_unscaling(model: nn.Module, batches: list[Batch], optimizer: torch.optim.Optimizer) -> None:
    scaler = torch.amp.GradScaler("cpu")
    for batch in batches:
        scaler.scale(loss_of(model, batch) / len(batches)).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    scaler.step(optimizer)
    scaler.update()


def _clipped_without_dividing(model: nn.Module, batches: list[Batch], optimizer: torch.optim.Optimizer) -> None:
    for batch in batches:
        loss_of(model, batch).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 3.0)
    optimizer.step()


@pytest.mark.parametrize(
    ("wrong", "tokens", "clip_norm", "off_by"),
    [
        pytest.param(_undivided, (50, 50), None, 1.0, id="b4.1: not divided, twice the gradient"),
        pytest.param(
            _clipped_without_dividing,
            (50, 50, 50, 50),
            3.0,
            1.0,
            id="b4.1: not divided, which the clip does not repair",
        ),
        pytest.param(_divided_by_steps_asked_for, (50,), None, 0.75, id="b4.2: a short window divided by all steps"),
        pytest.param(_mean_of_means, (100, 10), None, 0.5, id="b4.3: mean of means"),
        pytest.param(_clipped_before_unscaling, (50, 50), 0.05, 0.99, id="b4.5: clipped before unscaling"),
    ],
)
def test_the_same_comparison_shows_a_wrong_way_wrong(
    wrong: Callable[..., None], tokens: tuple[int, ...], clip_norm: float | None, off_by: float
) -> None:
    batches = batches_of(*tokens)
    expected = whole_gradients(batches, clip_norm)
    model = language_model()
    optimizer, taken = still(model)
    wrong(model, batches, optimizer)
    assert difference(taken.gradients[0], expected) >= off_by * 0.999
    right = run(batches, steps=4, items=count_tokens, clip_norm=clip_norm, scaler=torch.amp.GradScaler("cpu"))
    assert difference(right.gradients[0], expected) <= EQUAL


def test_batch_norm_is_unequal_and_named() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    inputs = torch.randn(16, 6) * torch.linspace(0.1, 4, 16)[:, None]
    model(inputs).square().mean().backward()
    whole = gradients_of(model)
    model.zero_grad()
    optimizer, taken = still(model)
    with pytest.warns(BatchNormWarning) as warned:
        for window in accumulate(inputs.split(4), model, optimizer, steps=4):
            for batch in window:
                window.backward(model(batch).square().mean())
            window.step()
    assert [str(each.message) for each in warned] == [
        "BatchNorm in train mode at 1: it normalises each micro-batch by the statistics of that micro-batch alone, and "
        "moves its running statistics 4 times per optimizer step. Gradients will not equal those of the large batch. "
        "Use GroupNorm, or freeze the statistics (layer.eval()), or keep the batch whole and save memory by activation "
        "checkpointing instead of accumulation."
    ]
    assert warned[0].filename == __file__
    assert difference(taken.gradients[0], whole) > 0.1


@pytest.mark.parametrize("norm", [nn.LayerNorm(8), nn.GroupNorm(2, 8), nn.BatchNorm1d(8).eval()])
def test_layer_norm_group_norm_and_frozen_batch_norm_are_cleared(norm: nn.Module) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), norm, nn.ReLU(), nn.Linear(8, 3))
    inputs = torch.randn(16, 6)
    model(inputs).square().mean().backward()
    whole = gradients_of(model)
    model.zero_grad()
    optimizer, taken = still(model)
    for window in accumulate(inputs.split(4), model, optimizer, steps=4):
        for batch in window:
            window.backward(model(batch).square().mean())
        window.step()
    assert difference(taken.gradients[0], whole) <= EQUAL


# Beside Accelerate


@pytest.mark.stacks
def test_equals_accelerate_on_full_windows() -> None:
    from accelerate import Accelerator

    batches = batches_of(*[50] * 6)
    theirs = language_model()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=3)
    prepared, optimizer = accelerator.prepare(theirs, torch.optim.AdamW(theirs.parameters(), lr=1e-2))
    for batch in batches:
        with accelerator.accumulate(prepared):
            accelerator.backward(loss_of(prepared, batch))
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(prepared.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()

    ours = language_model()
    own = torch.optim.AdamW(ours.parameters(), lr=1e-2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sizes(accumulate(batches, ours, own, steps=3, clip_norm=0.5), ours) == [3, 3]
    assert (ours[0].weight - language_model()[0].weight).abs().max().item() > 0.01  # both have moved
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(one, other, rtol=1e-6, atol=1e-7)

"""`accumulate` gives the gradient of the large batch, the known wrong ways do not, and misuse is refused in words."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.train.language import (
    Batch,
    Steps,
    batch_of,
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
from torch import nn
from torch.utils.data import DataLoader

from dryfit.errors import UsageError
from dryfit.train.accumulation import accumulate
from dryfit.train.warning_classes import AccumulationWarning, BatchNormWarning

EQUAL = 1e-6
UNEQUAL = (100, 10, 37, 64, 100, 10, 3)  # tokens of each micro-batch; with 3 steps the last window has one


def still(model: nn.Module) -> tuple[torch.optim.Optimizer, Steps]:
    """An optimizer that leaves the model as it is, so that every window can be compared with the first model's."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    return optimizer, Steps(optimizer)


def run(
    batches: list[Batch], *, steps: int, loss: Callable[[nn.Module, Batch], torch.Tensor] = loss_of, **rest: Any
) -> Steps:
    model = language_model()
    optimizer, taken = still(model)
    for window in accumulate(batches, model, optimizer, steps=steps, **rest):
        for batch in window:
            window.backward(loss(model, batch))
        window.step()
    return taken


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
        _walked(accumulate(batches, model, optimizer, steps=4, items=count_tokens, clip_norm=math.inf), model)
    )
    assert len(windows) == 1 and len(window) == 2 and window.items == 110 and window.index == 0
    assert window.stepped
    assert float(window.loss) == pytest.approx(float(loss_of(model, joined(batches)).detach()), rel=1e-6)
    whole = torch.cat([each.flatten() for each in whole_gradients(batches)])
    assert float(window.gradient_norm) == pytest.approx(float(whole.norm()), rel=1e-6)


def _walked(accumulation: Any, model: nn.Module) -> Iterator[Any]:
    for window in accumulation:
        for batch in window:
            window.backward(loss_of(model, batch))
        window.step()
        yield window


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


# The end of an epoch


def _sizes(accumulation: Any, model: nn.Module) -> list[int]:
    return [len(window) for window in _walked(accumulation, model)]


def test_the_last_window_is_stepped_dropped_or_carried() -> None:
    batches, model = batches_of(*[20] * 7), language_model()
    optimizer, _ = still(model)
    for last, first, second, windows in (
        ("step", [3, 3, 1], [3, 3, 1], 3),
        ("drop", [3, 3], [3, 3], 2),
        ("carry", [3, 3], [3, 3], 2),
    ):
        accumulation = accumulate(batches, model, optimizer, steps=3, last=last)
        assert len(accumulation) == windows
        assert (_sizes(accumulation, model), _sizes(accumulation, model)) == (first, second)
    assert accumulation.carried == 2 and len(accumulation) == 3
    assert _sizes(accumulation, model) == [3, 3, 3]
    assert accumulation.carried == 0


def test_what_is_carried_is_trained_once_and_first() -> None:
    batches, model = batches_of(*range(1, 6)), language_model()
    optimizer, _ = still(model)
    accumulation = accumulate(batches, model, optimizer, steps=3, items=count_tokens, last="carry")
    assert [window.items for window in _walked(accumulation, model)] == [1 + 2 + 3]
    assert [window.items for window in _walked(accumulation, model)] == [4 + 5 + 1, 2 + 3 + 4]


def test_between_windows_nothing_is_read_ahead() -> None:
    model = language_model()
    optimizer, _ = still(model)
    read: list[int] = []

    def loader() -> Iterator[Batch]:
        for at in range(7):
            read.append(at)
            yield batch_of(20)

    lengths = []
    for _ in _walked(accumulate(loader(), model, optimizer, steps=3), model):
        lengths.append(len(read))
    assert lengths == [3, 6, 7]


def test_micro_batches_without_items_are_passed_over() -> None:
    batches = batches_of(10, 0, 0, 30)
    with pytest.warns(AccumulationWarning) as warned:
        taken = run(batches, steps=2, items=count_tokens)
    assert [str(each.message) for each in warned] == [
        "Micro-batch 1 of the loader has no items, so the mean of its losses is 0/0. It is passed over, and so are "
        "others like it."
    ]
    assert warned[0].filename == __file__
    assert len(taken.gradients) == 1
    assert difference(taken.gradients[0], whole_gradients([batches[0], batches[3]])) <= EQUAL


@pytest.mark.filterwarnings("ignore:Micro-batch 0 of the loader has no items")
def test_a_loader_without_any_items_is_refused() -> None:
    with pytest.raises(UsageError, match=r"items\(batch\) was 0 for all 3 micro-batches of the loader"):
        run(batches_of(0, 0, 0), steps=2, items=count_tokens)
    endless = iter(lambda: batch_of(0), None)
    with pytest.raises(UsageError, match=r"items\(batch\) was 0 for 1000 micro-batches in a row, up to number 999"):
        run(endless, steps=2, items=count_tokens)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("count", "says"),
    [
        (math.nan, "items(batch) gave nan for micro-batch 0 of the loader; a count of items is a finite number"),
        (-3, "items(batch) gave -3.0 for micro-batch 0 of the loader; a count of items is a finite number"),
        (None, "items(batch) gave NoneType for micro-batch 0 of the loader; it has to give one number"),
        (torch.ones(3), "items(batch) gave Tensor for micro-batch 0 of the loader; it has to give one number"),
    ],
)
def test_what_is_no_count_is_refused(count: Any, says: str) -> None:
    with pytest.raises(UsageError) as refused:
        run(batches_of(10), steps=2, items=lambda _: count)
    assert str(refused.value).startswith(says)


def test_uneven_means_without_items_are_warned_of() -> None:
    with pytest.warns(AccumulationWarning) as warned:
        run(batches_of(100, 10), steps=2)
    assert [str(each.message) for each in warned] == [
        "In one window their labels other than -100 number 10 to 100, and no items are counted, so the mean loss of "
        "each micro-batch weighs the same. One large batch would weigh them by what each mean is over: give "
        "accumulate(..., items=...), which counts that in a batch."
    ]
    with pytest.warns(AccumulationWarning, match="In one window the micro-batches have 4 to 10 rows"):
        run([batch_of(20), batch_of(20, rows=4)], steps=2)


# Optimizers, scaler and schedule


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


# Refusals


def _window(**rest: Any) -> tuple[Any, nn.Module, torch.optim.Optimizer, Any]:
    model = language_model()
    optimizer, _ = still(model)
    windows = iter(accumulate(batches_of(9, 9, 9, 9), model, optimizer, steps=2, **rest))
    return next(windows), model, optimizer, windows


def _refused(act: Callable[[], Any]) -> str:
    with pytest.raises(UsageError) as refused:
        act()
    return str(refused.value)


def test_a_micro_batch_without_backward_is_refused() -> None:
    window, *_ = _window()
    assert _refused(lambda: list(window)) == (
        "Micro-batch 1 of the 2 in window 0 had no window.backward(loss), so the window's gradient would miss its "
        "part, and other ranks could wait for it. Call window.backward once for each micro-batch; leave out "
        "unwanted ones in the loader. An iterator that reads ahead of the loop has to go around the loader, not "
        "around the window."
    )


def test_a_second_backward_is_refused() -> None:
    window, model, *_ = _window()
    batch = next(iter(window))
    window.backward(loss_of(model, batch))
    assert _refused(lambda: window.backward(loss_of(model, batch))) == (
        "Micro-batch 1 of the 2 in window 0 had its backward already. Add up the losses of a micro-batch and call "
        "window.backward once."
    )


def test_a_backward_outside_the_loop_is_refused() -> None:
    window, model, *_ = _window()
    assert _refused(lambda: window.backward(loss_of(model, batch_of(9)))) == (
        "window.backward was called outside the loop over the window: for batch in window: ..."
    )


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        (
            lambda model, batch: 0.5,
            "The loss of micro-batch 1 of the 2 in window 0 is float, and has to be a tensor; leave out .item().",
        ),
        (
            lambda model, batch: model(batch["words"]),
            "The loss of micro-batch 1 of the 2 in window 0 has shape (10, 11, 17), and a backward starts from one "
            'number. Use .mean(), or .sum() with reduction="sum".',
        ),
        (
            lambda model, batch: loss_of(model, batch).detach(),
            "The loss of micro-batch 1 of the 2 in window 0 has no graph, so it has no gradient: it was computed under "
            "torch.no_grad() or inference_mode(), was detached, or no parameter it depends on requires a gradient.",
        ),
    ],
)
def test_what_is_no_loss_is_refused(loss: Callable[..., Any], says: str) -> None:
    window, model, *_ = _window()
    batch = next(iter(window))
    assert _refused(lambda: window.backward(loss(model, batch))) == says


def test_a_graph_can_be_kept_on_request() -> None:
    window, model, *_ = _window()
    loss = loss_of(model, next(iter(window)))
    window.backward(loss, retain_graph=True)
    loss.backward()


def test_a_step_too_early_or_twice_is_refused() -> None:
    window, model, *_ = _window()
    for batch in window:
        window.backward(loss_of(model, batch))
        break
    assert _refused(window.step) == (
        "window.step() was called when 1 of the 2 micro-batches of window 0 had their backward. Call it after the loop "
        "over the window, and do not leave that loop early; window.discard() throws a window away."
    )
    window.discard()
    assert _refused(window.step) == "window.step() was called twice for window 0; call it once, after the loop."
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_window_without_step_is_refused() -> None:
    window, model, _, windows = _window()
    for batch in window:
        window.backward(loss_of(model, batch))
    assert _refused(lambda: next(windows)) == (
        "Window 0 ended without window.step(), so its gradients would run into the next window. Call window.step() "
        "after the loop over the window, or window.discard() to throw them away."
    )


def test_a_discarded_window_steps_nothing_and_the_next_goes_on() -> None:
    window, model, _, windows = _window()
    for batch in window:
        window.backward(loss_of(model, batch))
    window.discard()
    assert not window.stepped and next(windows).index == 1


def test_steps_and_clearing_by_hand_are_refused() -> None:
    window, model, optimizer, _ = _window()
    batches = iter(window)
    window.backward(loss_of(model, next(batches)))
    assert _refused(optimizer.step) == (
        "SGD.step() was called by hand inside the loop over windows, where window.step() is what steps. Take "
        "optimizer.step(), scaler.step() and optimizer.zero_grad() out of the loop."
    )
    optimizer.zero_grad()
    assert _refused(lambda: window.backward(loss_of(model, next(batches)))) == (
        "The gradients of earlier micro-batches of window 0 are gone: was optimizer.zero_grad() left in the loop? "
        "window.step() clears gradients, after the step."
    )


def test_the_optimizer_is_free_again_after_the_loop() -> None:
    model = language_model()
    optimizer, taken = still(model)
    for _ in _walked(accumulate(batches_of(9), model, optimizer, steps=1), model):
        pass
    optimizer.step()
    assert len(taken.gradients) == 2


def test_a_loop_that_an_error_ended_can_be_begun_again() -> None:
    model = language_model()
    optimizer, taken = still(model)
    accumulation = accumulate(batches_of(9, 9), model, optimizer, steps=2)
    with pytest.raises(ZeroDivisionError) as kept:  # keeps the frames, and with them the loop's iterators
        for window in accumulation:
            for batch in window:
                window.backward(loss_of(model, batch) / (1 / 0))
    assert kept.value is not None
    assert _sizes(accumulation, model) == [2]
    assert len(taken.gradients) == 1


def test_gradients_from_before_are_refused() -> None:
    model = language_model()
    optimizer, _ = still(model)
    loss_of(model, batch_of(9)).backward()
    assert _refused(lambda: next(iter(accumulate(batches_of(9), model, optimizer, steps=2)))) == (
        "7 parameters have gradients from before window 0 began, which would be added to its own. Call "
        "optimizer.zero_grad() before the loop if they are of no use."
    )


def test_an_optimizer_of_other_parameters_is_refused() -> None:
    model = language_model()
    optimizer, _ = still(language_model())
    window = next(windows := iter(accumulate(batches_of(9), model, optimizer, steps=2)))
    for batch in window:
        window.backward(loss_of(model, batch))
    assert windows is not None  # the loop is under way
    assert _refused(window.step) == (
        "SGD has 7 parameters, and after a whole window none of them has a gradient, so its step would do nothing. Was "
        "it made before the model was wrapped, moved or replaced? Make it from the parameters of the model that gives "
        "the loss."
    )


def test_the_effective_batch_is_checked() -> None:
    data = DataLoader([(torch.zeros(3), 0)] * 64, batch_size=8)
    model = nn.Linear(3, 2)
    optimizer, _ = still(model)
    assert _refused(lambda: next(iter(accumulate(data, model, optimizer, steps=4, effective=64)))) == (
        "effective=64 was asked for, and micro-batches of 8 x 4 steps x 1 ranks make 32. Change one of them."
    )
    assert next(iter(accumulate(data, model, optimizer, steps=4, effective=32))).items == 4
    assert accumulate(data, model, optimizer, steps=4).describe() == (
        "4 micro-batches on 1 rank make one optimizer step: 8 x 4 x 1 = 32 samples."
    )
    assert next(iter(accumulate([torch.zeros(5, 3)] * 2, model, optimizer, steps=2, effective=10))).items == 2


class _Wrapper(torch.optim.SGD):
    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__([nn.Parameter(torch.zeros(1))])
        self.optimizer = optimizer


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda model: {"steps": 0}, "steps=0: it is the number of micro-batches per optimizer step, 1 or more."),
        (lambda model: {"last": "keep"}, "last='keep' is none of 'step', 'drop', 'carry'."),
        (lambda model: {"clip_norm": 0.0}, "clip_norm=0.0: the largest norm allowed has to be above zero."),
        (lambda model: {"optimizer": []}, "accumulate was given no optimizer."),
        (
            lambda model: {"optimizer": torch.optim.LBFGS(model.parameters())},
            "LBFGS calls a closure to compute the loss anew within one step, so no window of gradients can be made "
            "before it. Use another optimizer, or accumulate inside the closure.",
        ),
        (
            lambda model: {"optimizer": _Wrapper(torch.optim.SGD(model.parameters()))},
            "_Wrapper is a wrapper that decides by itself when to step. Give accumulate the optimizer inside it "
            "(optimizer.optimizer), or use the accumulation of the library it comes from.",
        ),
        (
            lambda model: {
                "scheduler": torch.optim.lr_scheduler.ReduceLROnPlateau(torch.optim.SGD(model.parameters()))
            },
            "ReduceLROnPlateau steps by a metric, not by optimizer steps. Leave it out of accumulate and call "
            "scheduler.step(metric) after each evaluation.",
        ),
        (
            lambda model: {"scheduler": torch.optim.lr_scheduler.StepLR(torch.optim.SGD(model.parameters()), 1)},
            "StepLR is not the schedule of an optimizer that accumulate was given. Make it from that optimizer.",
        ),
        (
            lambda model: {"fp32_gradients": True, "scaler": torch.amp.GradScaler("cpu")},
            "fp32_gradients goes with bf16 parameters, whose range needs no GradScaler; leave one of them out.",
        ),
    ],
)
def test_arguments_that_do_not_go_together_are_refused(
    change: Callable[[nn.Module], dict[str, Any]], says: str
) -> None:
    model = language_model()
    given = {"optimizer": torch.optim.SGD(model.parameters()), "steps": 2} | change(model)
    assert _refused(lambda: accumulate(batches_of(9), model, **given)) == says


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
        assert _sizes(accumulate(batches, ours, own, steps=3, clip_norm=0.5), ours) == [3, 3]
    assert (ours[0].weight - language_model()[0].weight).abs().max().item() > 0.01  # both have moved
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(one, other, rtol=1e-6, atol=1e-7)

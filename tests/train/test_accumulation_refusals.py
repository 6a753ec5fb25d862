"""What `accumulate` refuses: loops that would give another gradient, and arguments that do not go together."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.train.language import (
    batch_of,
    batches_of,
    language_model,
    loss_of,
)
from tests.train.loops import refused, sizes, still, walked
from torch import nn
from torch.utils.data import DataLoader

from dryfit.train.accumulation import accumulate


def _window(**rest: Any) -> tuple[Any, nn.Module, torch.optim.Optimizer, Any]:
    model = language_model()
    optimizer, _ = still(model)
    windows = iter(accumulate(batches_of(9, 9, 9, 9), model, optimizer, steps=2, **rest))
    return next(windows), model, optimizer, windows


def test_a_micro_batch_without_backward_is_refused() -> None:
    window, *_ = _window()
    assert refused(lambda: list(window)) == (
        "Micro-batch 1 of the 2 in window 0 had no window.backward(loss), so the window's gradient would miss its "
        "part, and other ranks could wait for it. Call window.backward once for each micro-batch; leave out "
        "unwanted ones in the loader. An iterator that reads ahead of the loop has to go around the loader, not "
        "around the window."
    )


def test_a_second_backward_is_refused() -> None:
    window, model, *_ = _window()
    batch = next(iter(window))
    window.backward(loss_of(model, batch))
    assert refused(lambda: window.backward(loss_of(model, batch))) == (
        "Micro-batch 1 of the 2 in window 0 had its backward already. Add up the losses of a micro-batch and call "
        "window.backward once."
    )


def test_a_backward_outside_the_loop_is_refused() -> None:
    window, model, *_ = _window()
    assert refused(lambda: window.backward(loss_of(model, batch_of(9)))) == (
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
            lambda model, batch: None,
            "The loss of micro-batch 1 of the 2 in window 0 is NoneType, and has to be a tensor; a function without "
            "return gives None, and so does .loss of a model of transformers without labels.",
        ),
        (
            lambda model, batch: SimpleNamespace(loss=loss_of(model, batch)),
            "The loss of micro-batch 1 of the 2 in window 0 is SimpleNamespace, and has to be a tensor; take its "
            ".loss.",
        ),
        (
            lambda model, batch: {"loss": loss_of(model, batch)},
            'The loss of micro-batch 1 of the 2 in window 0 is dict, and has to be a tensor; take its ["loss"].',
        ),
        (
            lambda model, batch: (loss_of(model, batch), 3),
            "The loss of micro-batch 1 of the 2 in window 0 is tuple, and has to be a tensor; take the loss out of it.",
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
    assert refused(lambda: window.backward(loss(model, batch))) == says


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
    assert refused(window.step) == (
        "window.step() was called when 1 of the 2 micro-batches of window 0 had their backward. Call it after the loop "
        "over the window, and do not leave that loop early; window.discard() throws a window away."
    )
    window.discard()
    assert refused(window.step) == "window.step() was called twice for window 0; call it once, after the loop."
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_window_without_step_is_refused() -> None:
    window, model, _, windows = _window()
    for batch in window:
        window.backward(loss_of(model, batch))
    assert refused(lambda: next(windows)) == (
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
    assert refused(optimizer.step) == (
        "SGD.step() was called by hand inside the loop over windows, where window.step() is what steps. Take "
        "optimizer.step(), scaler.step() and optimizer.zero_grad() out of the loop. (If it was another loop's "
        "window.step(), the two loops share this optimizer.)"
    )
    optimizer.zero_grad()
    assert refused(lambda: window.backward(loss_of(model, next(batches)))) == (
        "The gradients of earlier micro-batches of window 0 are gone: was optimizer.zero_grad() left in the loop? "
        "window.step() clears gradients, after the step."
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda model, optimizer, scaler: nn.utils.clip_grad_norm_(model.parameters(), 1e-3),
        lambda model, optimizer, scaler: optimizer.zero_grad(set_to_none=False),
        lambda model, optimizer, scaler: scaler.unscale_(optimizer),
    ],
    ids=["clipped", "zeroed", "unscaled"],
)
def test_gradients_changed_between_micro_batches_are_refused(change: Callable[..., Any]) -> None:
    scaler = torch.amp.GradScaler("cpu")
    window, model, optimizer, _ = _window(scaler=scaler)
    batches = iter(window)
    window.backward(loss_of(model, next(batches)))
    change(model, optimizer, scaler)
    assert refused(lambda: window.backward(loss_of(model, next(batches)))) == (
        "The gradients of earlier micro-batches of window 0 were changed after their backward: were clip_grad_norm_, "
        "scaler.unscale_ or zero_grad(set_to_none=False) left in the loop over the window? window.step() does that, "
        "once, after the last backward."
    )


def test_gradients_may_be_changed_after_the_last_backward() -> None:
    window, model, *_ = _window()
    for batch in window:
        window.backward(loss_of(model, batch))
    nn.utils.clip_grad_norm_(model.parameters(), 1e-3)  # of a kind of one's own, say
    window.step()
    assert window.stepped


def test_the_optimizer_is_free_again_after_the_loop() -> None:
    model = language_model()
    optimizer, taken = still(model)
    for _ in walked(accumulate(batches_of(9), model, optimizer, steps=1), model):
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
    assert sizes(accumulation, model) == [2]
    assert len(taken.gradients) == 1


def test_gradients_from_before_are_refused() -> None:
    model = language_model()
    optimizer, _ = still(model)
    loss_of(model, batch_of(9)).backward()
    assert refused(lambda: next(iter(accumulate(batches_of(9), model, optimizer, steps=2)))) == (
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
    assert refused(window.step) == (
        "SGD has 7 parameters, and after a whole window none of them has a gradient, so its step would do nothing. Was "
        "it made before the model was wrapped, moved or replaced? Make it from the parameters of the model that gives "
        "the loss."
    )


def test_the_effective_batch_is_checked() -> None:
    data = DataLoader([(torch.zeros(3), 0)] * 64, batch_size=8)
    model = nn.Linear(3, 2)
    optimizer, _ = still(model)
    assert refused(lambda: next(iter(accumulate(data, model, optimizer, steps=4, effective=64)))) == (
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
        (
            lambda model: {"steps": 0},
            "steps=0: it is the number of micro-batches per optimizer step, an int of 1 or more.",
        ),
        (lambda model: {"last": "keep"}, "last='keep' is none of 'step', 'drop', 'carry'."),
        (lambda model: {"clip_norm": 0.0}, "clip_norm=0.0: the largest norm allowed has to be a number above zero."),
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
            lambda model: {"scheduler": torch.optim.lr_scheduler.StepLR},
            "scheduler=<class 'torch.optim.lr_scheduler.StepLR'> is no schedule that has a step(), such as "
            "StepLR(optimizer, 10).",
        ),
        (lambda model: {"clip_norm": "1"}, "clip_norm='1': the largest norm allowed has to be a number above zero."),
        (lambda model: {"scaler": True}, "scaler=True is no torch.amp.GradScaler."),
        (lambda model: {"optimizer": model.parameters()}, "generator is no torch.optim.Optimizer."),
        (
            lambda model: {
                "optimizer": [torch.optim.SGD(model.parameters()), torch.optim.SGD(model[0].parameters())],
                "scaler": torch.amp.GradScaler("cpu"),
            },
            "1 parameters are in more than one optimizer, and GradScaler unscales the gradients of each by itself, so "
            "theirs would be unscaled twice. Give each parameter to one optimizer, or leave out the scaler.",
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
    assert refused(lambda: accumulate(batches_of(9), model, **given)) == says


def test_the_order_of_loader_model_and_optimizer_is_said() -> None:
    model = language_model()
    optimizer, _ = still(model)
    call = "The call is accumulate(loader, model, optimizer, steps=...), where model is a module, or several in a list."
    for wrong, kind in ((optimizer, "SGD"), (DataLoader([1]), "DataLoader"), (model.forward, "method")):
        assert refused(lambda wrong=wrong: accumulate(batches_of(9), wrong, optimizer, steps=2)) == (
            f"{kind} is no torch.nn.Module. {call}"
        )

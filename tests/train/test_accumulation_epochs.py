"""What `accumulate` takes from a loader: the last window, micro-batches without items, what is warned of."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.train import loops
from tests.train.language import (
    Batch,
    batch_of,
    batches_of,
    count_tokens,
    difference,
    language_model,
    loss_of,
    summed_loss_of,
    whole_gradients,
)
from tests.train.loops import EQUAL, run, sizes, still, walked
from torch import nn

from dryfit.errors import UsageError
from dryfit.train.accumulation import accumulate
from dryfit.train.warning_classes import AccumulationWarning


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
        assert (sizes(accumulation, model), sizes(accumulation, model)) == (first, second)
    assert accumulation.carried == 2 and len(accumulation) == 3
    assert sizes(accumulation, model) == [3, 3, 3]
    assert accumulation.carried == 0


def test_what_is_carried_is_trained_once_and_first() -> None:
    batches, model = batches_of(*range(1, 6)), language_model()
    optimizer, _ = still(model)
    accumulation = accumulate(batches, model, optimizer, steps=3, items=count_tokens, last="carry")
    assert [window.items for window in walked(accumulation, model)] == [1 + 2 + 3]
    assert [window.items for window in walked(accumulation, model)] == [4 + 5 + 1, 2 + 3 + 4]


def test_between_windows_nothing_is_read_ahead() -> None:
    model = language_model()
    optimizer, _ = still(model)
    read: list[int] = []

    def loader() -> Iterator[Batch]:
        for at in range(7):
            read.append(at)
            yield batch_of(20)

    lengths = []
    for _ in walked(accumulate(loader(), model, optimizer, steps=3), model):
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
    assert warned[0].filename == loops.__file__
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


def test_an_epoch_without_a_step_is_warned_of() -> None:
    model = language_model()
    optimizer, _ = still(model)
    with pytest.warns(AccumulationWarning) as warned:
        assert sizes(accumulate(batches_of(20, 20), model, optimizer, steps=3, last="drop"), model) == []
    assert [str(each.message) for each in warned] == [
        "The loader gave 2 micro-batches, fewer than the steps=3 of a window, and last='drop' leaves them out, so "
        "there was no optimizer step in this epoch."
    ]
    assert warned[0].filename == loops.__file__
    used_up = accumulate(iter(batches_of(20, 20)), model, optimizer, steps=2)
    assert sizes(used_up, model) == [2]
    with pytest.warns(AccumulationWarning) as warned:
        assert sizes(used_up, model) == []
    assert [str(each.message) for each in warned] == [
        "The loader gave no micro-batch, so there was no optimizer step in this epoch. A generator or an iterator "
        "gives what it has once: give a loader that begins anew, such as a DataLoader."
    ]
    assert sizes(accumulate(batches_of(20, 20), model, optimizer, steps=3, last="carry"), model) == []  # no warning


@pytest.mark.parametrize("last", ["step", "carry"])
def test_an_epoch_that_a_failing_loader_ended_leaves_nothing_for_the_next(last: str) -> None:
    model = language_model()
    optimizer, _ = still(model)
    fails = True

    def count(batch: Batch) -> int:
        if fails and count_tokens(batch) == 3:
            raise OSError("the disk is gone")
        return count_tokens(batch)

    accumulation = accumulate(batches_of(1, 2, 3, 4), model, optimizer, steps=4, items=count, last=last)
    with pytest.raises(OSError, match="the disk is gone"):
        sizes(accumulation, model)
    fails = False
    assert [window.items for window in walked(accumulation, model)] == [1 + 2 + 3 + 4]


def _divided(by: float) -> Callable[[nn.Module, Batch], torch.Tensor]:
    return lambda model, batch: loss_of(model, batch) / by


@pytest.mark.parametrize("loss", [_divided(4), lambda model, batch: 0.25 * loss_of(model, batch)])
def test_a_division_left_in_the_loop_is_warned_of(loss: Callable[..., torch.Tensor]) -> None:
    with pytest.warns(AccumulationWarning) as warned:
        run(batches_of(20, 20, 20, 20), steps=4, loss=loss)
    assert {str(each.message) for each in warned} == {
        "The loss is a mean divided by 4, as many as there are micro-batches in the window. window.backward divides by "
        "that itself, so the gradient would be 4 times too small: leave the division out of the loop."
    }
    assert warned[0].filename == loops.__file__


@pytest.mark.parametrize(
    "loss",
    [
        _divided(3),
        _divided(math.nan),
        lambda model, batch: (loss_of(model, batch) + loss_of(model, batch)) / 4,
        lambda model, batch: summed_loss_of(model, batch) / 4,
        lambda model, batch: loss_of(model, batch) * 0,
    ],
    ids=["another number", "nan", "several losses", "a sum over rows", "zero"],
)
def test_other_divisions_are_the_losss_own(loss: Callable[..., torch.Tensor]) -> None:
    run(batches_of(20, 20, 20, 20), steps=4, loss=loss)  # warnings are errors here

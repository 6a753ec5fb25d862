"""zero-grad: gradients of the step before are gone when the forward pass begins, and no others."""

from __future__ import annotations

import pytest
from tests.measures.conftest import figures

from dryfit.measures.facts import Facts, OptimizerFacts
from dryfit.measures.zero_grad import MEASURES

(MEASURE,) = MEASURES


@pytest.mark.parametrize("how", ["late", "zeros"])
def test_is_as_written_by_hand(rehearse, how: str) -> None:
    """In a program that gathers the gradients of two micro-batches."""
    plain, switched = (rehearse("zero_grad_late", how, measures=each) for each in ([], ["zero-grad"]))
    assert switched.measures == {"zero-grad": True}
    assert figures(switched) == figures(rehearse("zero_grad_late", "early"))
    assert switched.phase_peaks["forward"] < plain.phase_peaks["forward"]


def test_gradients_that_no_optimizer_has_used_stay(rehearse) -> None:
    """The program itself fails where they do not."""
    switched = rehearse("zero_grad_of_two", measures=["zero-grad"])
    assert switched.ending.how in ("steady", "finished"), switched.ending
    assert switched.measures == {"zero-grad": True}


def test_finds_nothing_where_gradients_are_freed_before(rehearse) -> None:
    switched = rehearse("language_model", measures=["zero-grad"])
    assert switched.measures == {"zero-grad": False}
    assert figures(switched) == figures(rehearse("language_model"))


def test_of_lightning(rehearse_stack) -> None:
    """Lightning zeroes gradients after training_step, in the closure that it gives the optimizer."""
    arguments = ("optimizer_lightning", "plain")
    switched = rehearse_stack(*arguments, "", "2", measures=["zero-grad"])
    assert switched.measures == {"zero-grad": True}
    assert switched.ending.how in ("steady", "finished")
    assert figures(switched) == figures(rehearse_stack(*arguments, "frees", "2"))


def test_applies_where_gradients_are_alive_in_the_forward_pass() -> None:
    optimizer = OptimizerFacts(kind="torch.optim.adamw.AdamW", parameters=8, tensors=1)
    assert MEASURE.why_not(Facts(optimizers=(optimizer,), gradient_bytes_in_forward=32)) == ""
    assert MEASURE.why_not(Facts(optimizers=(optimizer,))) == "gradients are freed before the forward pass already"
    assert MEASURE.why_not(Facts()) == "the program has no optimizer"
    assert MEASURE.changes(Facts()) == "nothing"

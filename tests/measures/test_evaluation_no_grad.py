"""evaluation-no-grad: equal to `torch.no_grad()` around the evaluation, and refused where it would stop training."""

from __future__ import annotations

import pytest

from dryfit.measures.evaluation_no_grad import MEASURES
from dryfit.measures.facts import Facts

from .conftest import figures

(MEASURE,) = MEASURES


def test_is_as_written_by_hand(assert_same_bytes) -> None:
    switched, plain = assert_same_bytes("evaluation_loop", ["evaluation-no-grad"], "evaluation_by_hand")
    assert "evaluation" not in plain.phase_peaks
    assert switched.phase_peaks["evaluation"] < plain.peak_allocated_bytes / 2


@pytest.mark.parametrize("how", ["wholly", "in part"])
def test_is_refused_where_a_model_is_trained_in_evaluation_mode(rehearse, how) -> None:
    result = rehearse("evaluation_trained", how, measures=["evaluation-no-grad"])
    assert result.ending.how == "not switched on"
    assert (
        "Linear is trained while it is in evaluation mode, so that its calls cannot be told from those of an "
        "evaluation; put torch.no_grad() around the evaluation by hand."
    ) in result.ending.sentence


def test_a_model_that_another_is_trained_through_keeps_its_graph(rehearse) -> None:
    switched = rehearse("evaluation_trained", "through", measures=["evaluation-no-grad"])
    assert switched.measures == {"evaluation-no-grad": False}
    assert figures(switched) == figures(rehearse("evaluation_trained", "through"))


def test_applies_to_evaluations_with_a_graph() -> None:
    assert MEASURE.why_not(Facts(evaluation_with_graph=True)) == ""
    assert MEASURE.why_not(Facts()) == (
        "no model in evaluation mode keeps activations for a backward pass that does not come"
    )

"""fused-optimizer: equal to `fused=True`, and to nothing where it cannot be."""

from __future__ import annotations

import pytest
import torch
from tests.measures.conftest import figures

from dryfit.measures.facts import Facts, OptimizerFacts
from dryfit.measures.fused_optimizer import MEASURES
from dryfit.measures.moments import CannotSwitchOn, Moments, WantedOptimizer

(MEASURE,) = MEASURES


def test_is_as_written_by_hand(assert_same_bytes) -> None:
    switched, plain = assert_same_bytes("language_model", ["fused-optimizer"], "fused_by_hand")
    assert switched.phase_peaks["optimizer step"] < plain.phase_peaks["optimizer step"]


@pytest.mark.parametrize("program", ["optimizer_groups", "optimizer_closure"])
def test_with_groups_a_scaler_and_a_closure(rehearse, program: str) -> None:
    switched = rehearse(program, measures=["fused-optimizer"])
    assert switched.measures == {"fused-optimizer": True}
    assert figures(switched) == figures(rehearse(program, "fused"))


def test_says_that_it_found_nothing_where_all_is_fused(rehearse) -> None:
    assert rehearse("optimizer_closure", "fused", measures=["fused-optimizer"]).measures == {"fused-optimizer": False}


def test_groups_are_told_too() -> None:
    wanted = _wanted({"params": [], "foreach": True, "lr": 0.1}, {"params": [], "fused": False})
    assert wanted.settings == {"fused": True, "foreach": None}
    assert wanted.groups == [{"params": [], "foreach": None, "lr": 0.1}, {"params": [], "fused": True}]


def test_a_differentiable_optimizer_is_refused() -> None:
    with pytest.raises(CannotSwitchOn) as refused:
        _wanted({"params": [], "differentiable": True})
    assert str(refused.value) == "a fused optimizer cannot be differentiable, as the program asks for"


def _wanted(*groups: dict[str, object]) -> WantedOptimizer:
    moments = Moments(name=MEASURE.name, after_import=lambda *_: None)
    MEASURE.switch_on(moments, "")
    wanted = WantedOptimizer(kind=torch.optim.AdamW, groups=list(groups), settings={})
    moments.on_optimizer_wanted[0](wanted)
    return wanted


def test_applies_to_optimizers_of_torch_that_can_be_fused() -> None:
    adam = OptimizerFacts(kind="torch.optim.adamw.AdamW", parameters=8, tensors=1)
    other = OptimizerFacts(kind="torch.optim.adagrad.Adagrad", parameters=8, tensors=1)
    fused = OptimizerFacts(kind="torch.optim.adamw.AdamW", parameters=8, tensors=1, fused=True)
    assert MEASURE.why_not(Facts(optimizers=(adam, other))) == ""
    assert MEASURE.why_not(Facts(optimizers=(other,))) == (
        "no optimizer of the program is one of torch.optim's Adam, AdamW, SGD, which can be fused"
    )
    assert MEASURE.why_not(Facts(optimizers=(fused,))) == "the program's optimizer is fused already"

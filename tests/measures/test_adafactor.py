"""Adafactor: torch's in plain loops, and transformers' own under its Trainer."""

from __future__ import annotations

import json

import pytest
import torch
from tests.measures.conftest import figures

from dryfit.measures.adafactor import MEASURES
from dryfit.measures.facts import Facts, OptimizerFacts
from dryfit.measures.moments import CannotSwitchOn, Moments, WantedOptimizer

(MEASURE,) = MEASURES


def test_is_as_written_by_hand(assert_same_bytes) -> None:
    switched, plain = assert_same_bytes("language_model", ["adafactor"], "adafactor_by_hand")
    assert switched.phase_peaks["forward"] < plain.phase_peaks["forward"]


def test_with_groups_a_schedule_and_a_scaler(rehearse) -> None:
    switched = rehearse("optimizer_groups", measures=["adafactor"])
    assert switched.measures == {"adafactor": True}
    assert figures(switched) == figures(rehearse("optimizer_groups", "adafactor"))


def test_of_transformers_trainer(rehearse_stack) -> None:
    switched = rehearse_stack("optimizer_trainer", measures=["adafactor"])
    assert switched.measures == {"adafactor": True}
    assert switched.ending.how in ("steady", "finished")
    assert figures(switched) == figures(rehearse_stack("optimizer_trainer", json.dumps({"optim": "adafactor"})))


def test_applies_to_torchs_adam_and_adamw() -> None:
    adam = OptimizerFacts(kind="torch.optim.adam.Adam", parameters=8, tensors=1)
    other = OptimizerFacts(kind="torch.optim._adafactor.Adafactor", parameters=8, tensors=1)
    assert MEASURE.why_not(Facts(optimizers=(adam,))) == ""
    assert MEASURE.why_not(Facts(optimizers=(other,))) == (
        "the program's optimizer is Adafactor, and this stands in for torch.optim's Adam and AdamW"
    )
    assert MEASURE.changes(Facts(optimizers=(adam,))) == "method"


def test_settings_that_mean_something_else_are_left_out() -> None:
    moments = Moments(name="adafactor", after_import=lambda *_: None)
    MEASURE.switch_on(moments, "")
    (change,) = moments.on_optimizer_wanted
    group = {"params": [], "eps": 1e-7, "betas": (0.5, 0.5), "lr": 0.2, "layer": 3}
    wanted = WantedOptimizer(kind=torch.optim.AdamW, groups=[group], settings={"lr": 0.1, "eps": 1e-6, "foreach": True})
    change(wanted)
    assert wanted.kind is torch.optim.Adafactor
    assert wanted.settings == {"lr": 0.1, "weight_decay": 0.01}  # AdamW's own default
    assert wanted.groups == [{"params": [], "lr": 0.2, "layer": 3}]
    plain = WantedOptimizer(kind=torch.optim.Adam, groups=[], settings={})
    change(plain)
    assert plain.settings == {}


def test_torch_before_2_5_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = Moments(name="adafactor", after_import=lambda *_: None)
    MEASURE.switch_on(moments, "")
    monkeypatch.delattr(torch.optim, "Adafactor")
    with pytest.raises(CannotSwitchOn) as refused:
        moments.on_optimizer_wanted[0](WantedOptimizer(kind=torch.optim.Adam, groups=[], settings={}))
    assert str(refused.value) == f"torch.optim.Adafactor came with torch 2.5, and this is {torch.__version__}"

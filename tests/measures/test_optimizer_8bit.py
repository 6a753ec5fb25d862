"""8-bit optimizers: as bitsandbytes' and torchao's are by hand, in plain loops and under transformers' Trainer."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from tests.measures.conftest import figures

from dryfit.measures import adamw_8bit, torchao_adamw_8bit
from dryfit.measures.facts import Facts, ModelFacts, OptimizerFacts
from dryfit.measures.moments import CannotSwitchOn, Moments, WantedOptimizer

PLAIN, PAGED = adamw_8bit.MEASURES
(TORCHAO,) = torchao_adamw_8bit.MEASURES
ADAMW = OptimizerFacts(kind="torch.optim.adamw.AdamW", parameters=8, tensors=1)


@pytest.mark.parametrize(
    ("measure", "by_hand"), [("adamw-8bit", "adam8_by_hand"), ("paged-adamw-8bit", "adam8_paged_by_hand")]
)
def test_is_as_written_by_hand(assert_same_bytes, rehearse_stack, measure: str, by_hand: str) -> None:
    switched, plain = assert_same_bytes("language_model", [measure], by_hand, rehearse=rehearse_stack)
    assert switched.peak_allocated_bytes < plain.peak_allocated_bytes


@pytest.mark.parametrize(("measure", "which"), [("adamw-8bit", "8bit"), ("paged-adamw-8bit", "paged")])
def test_with_groups_a_schedule_and_a_scaler(rehearse_stack, measure: str, which: str) -> None:
    switched = rehearse_stack("optimizer_groups", measures=[measure])
    assert switched.measures == {measure: True}
    assert figures(switched) == figures(rehearse_stack("optimizer_groups", which))


def test_adam_with_a_closure(rehearse_stack) -> None:
    switched = rehearse_stack("optimizer_closure", measures=["adamw-8bit"])
    assert figures(switched) == figures(rehearse_stack("optimizer_closure", "8bit"))


def test_of_transformers_trainer(rehearse_stack) -> None:
    """The Trainer keeps the states of embeddings in 32 bits, which the class alone does not."""
    switched = rehearse_stack("optimizer_trainer", measures=["adamw-8bit"])
    assert switched.measures == {"adamw-8bit": True}
    assert switched.ending.how in ("steady", "finished")
    assert figures(switched) == figures(rehearse_stack("optimizer_trainer", json.dumps({"optim": "adamw_bnb_8bit"})))


@pytest.mark.parametrize(
    ("measure", "name"), [(PLAIN, "adamw_bnb_8bit"), (PAGED, "paged_adamw_8bit"), (TORCHAO, "adamw_torch_8bit")]
)
def test_transformers_trainer_is_told_its_own_name(measure, name: str) -> None:
    wrapped: list[Callable[[ModuleType], None]] = []
    moments = Moments(name=measure.name, after_import=lambda _, do: wrapped.append(do))
    measure.switch_on(moments, "")
    module = ModuleType("training_args")
    module.TrainingArguments = type("TrainingArguments", (), {"__post_init__": lambda _: None})
    for wrap in wrapped:
        wrap(module)
    for optim, becomes in {"adamw_torch": name, "adamw_torch_fused": name, "sgd": "sgd"}.items():
        arguments = module.TrainingArguments()
        arguments.optim = optim
        arguments.__post_init__()
        assert arguments.optim == becomes


def test_torchaos_is_as_written_by_hand(rehearse) -> None:
    pytest.importorskip("torchao")
    switched = rehearse("adam8_one_shape", measures=["torchao-adamw-8bit"])
    assert switched.measures == {"torchao-adamw-8bit": True}
    written = rehearse("adam8_one_shape", "torchao.optim.AdamW8bit")
    assert written.ending.how in ("steady", "finished"), written.ending
    assert figures(switched) == figures(written)
    assert switched.peak_allocated_bytes < rehearse("adam8_one_shape").peak_allocated_bytes


@pytest.mark.parametrize("measure", [PLAIN, PAGED, TORCHAO], ids=lambda measure: measure.name)
def test_applies_to_torchs_adam_and_adamw(measure) -> None:
    other = OptimizerFacts(kind="torch.optim.adagrad.Adagrad", parameters=8, tensors=1)
    own = OptimizerFacts(kind="train.AdamW", parameters=8, tensors=1)
    assert measure.why_not(Facts(optimizers=(other, ADAMW))) == ""
    assert measure.why_not(Facts(optimizers=(other,))) == (
        "the program's optimizer is Adagrad, and this stands in for torch.optim's Adam and AdamW"
    )
    assert measure.why_not(Facts(optimizers=(own, other))) == (
        "the program's optimizer is Adagrad and AdamW, and this stands in for torch.optim's Adam and AdamW"
    )
    assert measure.why_not(Facts()) == "the program has no optimizer"
    assert measure.changes(Facts(optimizers=(ADAMW,))) == "precision"


@pytest.mark.parametrize("measure", [PLAIN, PAGED], ids=lambda measure: measure.name)
def test_does_not_apply_under_fsdp2(measure) -> None:
    sharded = ModelFacts(kind="train.Model", parameters=8, trainable=8, is_distributed="FSDP2")
    assert measure.why_not(Facts(optimizers=(ADAMW,), models=(sharded,))) == (
        "bitsandbytes' optimizers do not take the sharded parameters (DTensor) of FSDP2"
    )


def test_settings_are_carried_over() -> None:
    parameter = torch.nn.Parameter(torch.zeros(2, 2))
    group = {"params": [parameter], "weight_decay": 0.3, "fused": True, "layer": 3}
    settings = {"lr": 0.5, "betas": (0.7, 0.8), "eps": 1e-6, "weight_decay": 0.1, "foreach": False, "amsgrad": False}
    wanted = _wanted(PLAIN, WantedOptimizer(kind=torch.optim.AdamW, groups=[group], settings=settings))
    import bitsandbytes

    assert wanted.kind is bitsandbytes.optim.AdamW8bit
    assert wanted.settings == {"lr": 0.5, "betas": (0.7, 0.8), "eps": 1e-6, "weight_decay": 0.1}
    assert wanted.groups == [{"params": [parameter], "weight_decay": 0.3, "layer": 3}]


def test_what_it_does_not_have_is_refused() -> None:
    wanted = WantedOptimizer(kind=torch.optim.Adam, groups=[], settings={"amsgrad": True})
    with pytest.raises(CannotSwitchOn) as refused:
        _wanted(PLAIN, wanted)
    assert str(refused.value) == (
        "the program makes Adam with amsgrad=True, which the optimizer that takes its place does not have"
    )
    group = {"params": [], "maximize": True}
    with pytest.raises(CannotSwitchOn, match=r"^the program makes AdamW with maximize=True, which "):
        _wanted(TORCHAO, WantedOptimizer(kind=torch.optim.AdamW, groups=[group], settings={}))


def test_a_package_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes.optim", None)
    with pytest.raises(CannotSwitchOn) as refused:
        _wanted(PAGED, WantedOptimizer(kind=torch.optim.AdamW, groups=[], settings={}))
    assert str(refused.value).startswith("bitsandbytes cannot be imported (")
    assert str(refused.value).endswith("); install it with `pip install bitsandbytes`")


def test_snippets() -> None:
    assert PAGED.snippet("pytorch") == (
        "import bitsandbytes as bnb\noptimizer = bnb.optim.PagedAdamW8bit(model.parameters(), ...)"
    )
    assert PLAIN.snippet("transformers") == 'TrainingArguments(..., optim="adamw_bnb_8bit")'
    assert TORCHAO.snippet("transformers") == 'TrainingArguments(..., optim="adamw_torch_8bit")'


def _wanted(measure, wanted: WantedOptimizer) -> WantedOptimizer:
    """What becomes of an optimizer that a program wants."""
    moments = Moments(name=measure.name, after_import=lambda *_: None)
    measure.switch_on(moments, "")
    (change,) = moments.on_optimizer_wanted
    change(wanted)
    assert moments.has_acted
    return wanted

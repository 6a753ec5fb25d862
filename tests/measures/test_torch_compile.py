"""torch-compile: equal to `model.compile()`."""

from __future__ import annotations

import pytest

from dryfit.measures.facts import Facts, ModelFacts
from dryfit.measures.moments import Moments
from dryfit.measures.torch_compile import MEASURES

from .conftest import figures

torch = pytest.importorskip("torch")
nn = torch.nn

(MEASURE,) = MEASURES


def test_is_as_written_by_hand(rehearse) -> None:
    pytest.importorskip("triton")
    plain, switched = rehearse("compile_by_hand"), rehearse("compile_by_hand", measures=["torch-compile"])
    in_place = rehearse("compile_by_hand", "in place")
    for result in (plain, switched, in_place):
        assert result.ending.how == "finished", result.ending
    assert switched.measures == {"torch-compile": True}
    assert figures(switched) == figures(in_place)
    assert switched.phase_peaks["backward"] < plain.phase_peaks["backward"]


@pytest.fixture
def moments() -> Moments:
    moments = Moments(name=MEASURE.name, after_import=lambda *_: None)
    MEASURE.switch_on(moments, "")
    return moments


def call(moments: Moments, model) -> None:
    for do in moments.on_model_called:
        do(model, (), {})


def test_compiles_a_model_once_and_none_of_its_parts(moments: Moments, monkeypatch) -> None:
    compiled = []
    monkeypatch.setattr(nn.Module, "compile", lambda module: compiled.append(module))
    part = nn.Linear(2, 2)
    model = nn.Sequential(part)
    call(moments, model)
    call(moments, model)
    call(moments, part)
    assert compiled == [model]
    assert moments.has_acted


def test_leaves_what_is_not_trained_or_compiled_already_alone(moments: Moments) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    call(moments, model.eval())
    with torch.no_grad():
        call(moments, model.train())
    call(moments, nn.Linear(2, 2).requires_grad_(False))
    call(moments, torch.compile(model))
    model[0].compile()
    call(moments, model)
    assert not moments.has_acted


def test_applies_to_models_that_are_not_compiled() -> None:
    def facts(**known) -> Facts:
        return Facts(models=(ModelFacts(kind="m.Model", parameters=8, trainable=8, **known),))

    assert MEASURE.why_not(facts()) == ""
    assert MEASURE.why_not(facts(is_compiled=True)) == "the program's model is compiled already"
    assert MEASURE.why_not(Facts()) == "no model is trained, so there is none to compile"

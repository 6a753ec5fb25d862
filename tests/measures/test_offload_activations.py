"""offload-activations: equal to `save_on_cpu` around the forward pass and the loss, and cheap for this machine."""

from __future__ import annotations

import pytest

from dryfit.measures.facts import Facts, ModelFacts
from dryfit.measures.moments import Moments
from dryfit.measures.offload_activations import MEASURES

torch = pytest.importorskip("torch")

(MEASURE,) = MEASURES


def test_is_as_written_by_hand(assert_same_bytes) -> None:
    switched, plain = assert_same_bytes("language_model", ["offload-activations"], "offload_by_hand")
    assert switched.phase_peaks["forward"] < plain.phase_peaks["forward"]


def test_goes_together_with_checkpointing(assert_same_bytes) -> None:
    measures = ["checkpoint-blocks", "offload-activations"]
    assert_same_bytes("language_model", measures, "offload_checkpointed_by_hand")


def test_what_is_moved_takes_no_memory_of_this_machine(rehearse) -> None:
    result = rehearse("offload_resident")
    assert result.ending.how == "finished", result.ending


@pytest.fixture
def moments() -> Moments:
    moments = Moments(name=MEASURE.name, after_import=lambda *_: None)
    MEASURE.switch_on(moments, "")
    return moments


def call(moments: Moments, model) -> None:
    for do in moments.on_model_called:
        do(model, (), {})


def is_saving() -> bool:
    """Whether a tensor that is saved now is another one when it is taken out again."""
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    return y.grad_fn._saved_result.data_ptr() != y.data_ptr()


def test_lasts_from_a_models_call_to_the_backward_pass(moments: Moments) -> None:
    model = torch.nn.Linear(2, 2)
    call(moments, model)
    call(moments, model)
    assert is_saving()
    for do in moments.on_backward:
        do()
    assert not is_saving()


def test_ends_with_the_step_where_no_backward_pass_came(moments: Moments) -> None:
    call(moments, torch.nn.Linear(2, 2))
    for do in moments.on_round_over:
        do()
    assert not is_saving()


def test_leaves_what_is_not_trained_alone(moments: Moments) -> None:
    model = torch.nn.Linear(2, 2)
    call(moments, model.eval())
    with torch.no_grad():
        call(moments, model.train())
    call(moments, model.requires_grad_(False))
    assert not moments.has_acted
    assert not is_saving()


def test_applies_where_a_model_is_trained() -> None:
    model = ModelFacts(kind="m.Model", parameters=8, trainable=8)
    assert MEASURE.why_not(Facts(models=(model,))) == ""
    assert MEASURE.why_not(Facts()) == "no model is trained, so no activations are kept for a backward pass"

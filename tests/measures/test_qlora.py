"""qlora: equal to layers of bitsandbytes and adapters of peft put in by hand, and to transformers' own loading."""

from __future__ import annotations

import pytest

from dryfit.measures.facts import Facts, ModelFacts, OptimizerFacts
from dryfit.measures.qlora import MEASURES

from .conftest import figures

(MEASURE,) = MEASURES


@pytest.mark.stacks
@pytest.mark.parametrize("program", [("qlora_loop", "float32"), ("qlora_loop", "bfloat16"), ("qlora_trainer",)])
def test_is_as_written_by_hand(rehearse_stack, program) -> None:
    switched = rehearse_stack(*program, measures=["qlora:16"])
    assert switched.ending.how in ("steady", "finished")
    assert switched.measures == {"qlora": True}
    assert figures(switched) == figures(rehearse_stack(*program, "adapted"))


@pytest.mark.stacks
def test_a_model_that_is_made_on_the_card_is_refused(rehearse_stack) -> None:
    result = rehearse_stack("qlora_loop", "float32", "", "cuda", measures=["qlora"])
    assert result.ending.how == "not switched on"
    assert (
        "Model is made on the card, so that its full weights have been there before they can be quantized; make it on "
        "the host, and move it to the card then."
    ) in result.ending.sentence


def test_applies_to_models_that_are_not_quantized() -> None:
    adam = OptimizerFacts(kind="torch.optim.adamw.AdamW", parameters=8, tensors=1)

    def why_not(**others) -> str:
        model = ModelFacts(kind="m.M", parameters=8, trainable=8, linear_layers=16, blocks={"Block": 4}, **others)
        return MEASURE.why_not(Facts(optimizers=(adam,), models=(model,)))

    assert why_not() == ""
    assert why_not(is_peft=True) == "the program trains adapters already"
    assert why_not(parameter_bytes={"uint8": 64}) == "the model is quantized already"

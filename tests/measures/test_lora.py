"""lora: equal to `peft.get_peft_model` before the optimizer, and before a Trainer."""

from __future__ import annotations

import pytest

from dryfit.measures.facts import Facts, ModelFacts, OptimizerFacts
from dryfit.measures.lora import MEASURES

from .conftest import figures

(MEASURE,) = MEASURES
ADAM = OptimizerFacts(kind="torch.optim.adamw.AdamW", parameters=8, tensors=1)


@pytest.mark.stacks
@pytest.mark.parametrize(
    ("plain", "by_hand"),
    [
        (("language_model",), ("lora_by_hand",)),
        (("lora_groups",), ("lora_groups", "adapted")),
        (("lora_trainer",), ("lora_trainer", "16")),
        (("lora_trainer", "", "loop"), ("lora_trainer", "16", "loop")),
        (("lora_lightning",), ("lora_lightning", "adapted")),
    ],
    ids=["loop", "groups in bfloat16", "Trainer", "loop with a model of transformers", "Lightning"],
)
def test_is_as_written_by_hand(rehearse_stack, plain, by_hand) -> None:
    switched = rehearse_stack(*plain, measures=["lora:16"])
    assert switched.ending.how in ("steady", "finished")
    assert switched.measures == {"lora": True}
    assert figures(switched) == figures(rehearse_stack(*by_hand))


@pytest.mark.stacks
def test_a_program_with_adapters_stays_as_it_is(rehearse_stack) -> None:
    assert figures(rehearse_stack("lora_groups", "adapted", measures=["lora:8"])) == figures(
        rehearse_stack("lora_groups", "adapted")
    )


def test_applies_to_models_with_linear_layers_in_blocks() -> None:
    def model(**others) -> ModelFacts:
        return ModelFacts(kind="m.M", parameters=8, trainable=8, **others)

    layered = model(blocks={"Block": 4}, linear_layers=16)
    assert MEASURE.why_not(Facts(optimizers=(ADAM,), models=(layered,))) == ""
    assert MEASURE.why_not(Facts(optimizers=(ADAM,), models=(model(is_transformers=True, linear_layers=1),))) == ""
    assert MEASURE.why_not(Facts(models=(layered,))) == "the program makes no optimizer, so nothing is trained"
    assert MEASURE.why_not(Facts(optimizers=(ADAM,), models=(model(is_peft=True),))) == (
        "the program trains adapters already"
    )
    assert MEASURE.why_not(Facts(optimizers=(ADAM,), models=(model(blocks={"Block": 4}),))) == (
        "the model has no linear layers in repeated blocks, to which adapters could be added"
    )

"""freeze-blocks: equal to `requires_grad_(False)` before the optimizer, in plain PyTorch and for a Trainer."""

from __future__ import annotations

import pytest

from dryfit.measures.facts import Facts, ModelFacts, OptimizerFacts
from dryfit.measures.freeze_blocks import MEASURES

from .conftest import figures

(MEASURE,) = MEASURES
ADAM = OptimizerFacts(kind="torch.optim.adamw.AdamW", parameters=8, tensors=1)


def test_is_as_written_by_hand(assert_same_bytes) -> None:
    switched, plain = assert_same_bytes("language_model", ["freeze-blocks"], "freeze_by_hand")
    assert switched.phase_peaks["optimizer step"] < plain.phase_peaks["optimizer step"] * 0.8


@pytest.mark.stacks
def test_is_as_written_by_hand_for_a_trainer(rehearse_stack) -> None:
    switched = rehearse_stack("freeze_trainer", measures=["freeze-blocks"])
    assert switched.measures == {"freeze-blocks": True}
    assert figures(switched) == figures(rehearse_stack("freeze_trainer", "frozen"))


def test_applies_to_models_of_repeated_blocks() -> None:
    def model(**others) -> ModelFacts:
        return ModelFacts(kind="m.M", parameters=8, trainable=8, **others)

    blocks = {"Block": 4}
    assert MEASURE.why_not(Facts(optimizers=(ADAM,), models=(model(blocks=blocks),))) == ""
    assert MEASURE.why_not(Facts(models=(model(blocks=blocks),))) == (
        "the program makes no optimizer, so nothing is trained"
    )
    assert MEASURE.why_not(Facts(optimizers=(ADAM,), models=(model(),))) == (
        "no repeated blocks were found in the model, of which a part could be frozen"
    )
    assert MEASURE.why_not(Facts(optimizers=(ADAM,), models=(model(blocks=blocks, is_peft=True),))) == (
        "the program trains adapters, and has frozen the model already"
    )

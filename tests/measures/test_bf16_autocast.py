"""bf16-autocast: equal to autocast written by hand, and to what trainers have for it."""

from __future__ import annotations

import json

import pytest

from dryfit.measures.bf16_autocast import MEASURES
from dryfit.measures.facts import Facts, ModelFacts

from .conftest import figures

(MEASURE,) = MEASURES


def test_is_as_written_by_hand(assert_same_bytes) -> None:
    switched, plain = assert_same_bytes("autocast_loop", ["bf16-autocast"], "autocast_by_hand")
    assert switched.phase_peaks["forward"] < plain.phase_peaks["forward"]


def test_is_as_written_by_hand_with_an_evaluation_and_a_teacher(assert_same_bytes) -> None:
    switched, plain = assert_same_bytes("autocast_evaluates", ["bf16-autocast"], "autocast_evaluates_by_hand")
    assert switched.phase_peaks["evaluation"] < plain.phase_peaks["evaluation"]


@pytest.mark.stacks
@pytest.mark.parametrize(
    ("program", "by_hand"),
    [
        ("autocast_trainer", {"bf16": True}),
        ("autocast_lightning", {"precision": "bf16-mixed"}),
        ("autocast_accelerate", {"mixed_precision": "bf16"}),
    ],
)
def test_is_what_a_trainer_has_for_it(rehearse_stack, program: str, by_hand: dict[str, object]) -> None:
    switched = rehearse_stack(program, measures=["bf16-autocast"])
    written = rehearse_stack(program, json.dumps(by_hand))
    assert switched.ending.how in ("steady", "finished"), switched.ending
    assert switched.measures == {"bf16-autocast": True}
    assert figures(switched) == figures(written)


def test_applies_where_something_is_computed_in_float32() -> None:
    half, whole, mixed = ({"bfloat16": 8}, {"float32": 8}, {"bfloat16": 8, "float32": 8})
    models = [ModelFacts(kind="m.M", parameters=4, trainable=4, parameter_bytes=each) for each in (half, whole, mixed)]
    assert MEASURE.why_not(Facts(models=(models[0], models[1]))) == ""
    assert MEASURE.why_not(Facts(models=(models[2],))) == ""
    assert MEASURE.why_not(Facts(models=(models[0],))) == "all parameters are bfloat16 already"
    assert MEASURE.why_not(Facts(models=(models[1],), autocast="float16")) == "autocast is on already (float16)"

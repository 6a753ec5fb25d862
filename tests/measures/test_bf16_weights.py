"""bf16-weights: equal to a model that a person has converted, and to what trainers have for it."""

from __future__ import annotations

import json

import pytest

from dryfit.measures.bf16_weights import MEASURES
from dryfit.measures.facts import Facts, ModelFacts

from .conftest import figures

(MEASURE,) = MEASURES


def test_is_as_written_by_hand(assert_same_bytes) -> None:
    switched, plain = assert_same_bytes("language_model", ["bf16-weights"], "bf16_by_hand")
    assert switched.phase_peaks["setup"] < 0.51 * plain.phase_peaks["setup"]
    assert switched.peak_allocated_bytes < 0.6 * plain.peak_allocated_bytes


@pytest.mark.parametrize("place", ["host", "card"])
def test_inputs_are_cast_wherever_the_model_was_made(assert_same_bytes, place: str) -> None:
    assert_same_bytes("bf16_images", ["bf16-weights"], "bf16_images_by_hand", arguments=(place,))


@pytest.mark.stacks
def test_is_what_transformers_has_for_it(rehearse_stack) -> None:
    switched = rehearse_stack("bf16_transformers", measures=["bf16-weights"])
    assert switched.measures == {"bf16-weights": True}
    assert figures(switched) == figures(rehearse_stack("bf16_transformers", "bfloat16"))


@pytest.mark.stacks
def test_is_what_lightning_has_for_it(rehearse_stack) -> None:
    switched = rehearse_stack("autocast_lightning", measures=["bf16-weights"])
    assert switched.measures == {"bf16-weights": True}
    written = rehearse_stack("autocast_lightning", json.dumps({"precision": "bf16-true"}))
    assert figures(switched) == figures(written)


def test_applies_to_weights_in_float32() -> None:
    half, whole = (
        ModelFacts(kind="m.M", parameters=4, trainable=4, parameter_bytes=each)
        for each in ({"bfloat16": 8}, {"float32": 16})
    )
    assert MEASURE.why_not(Facts(models=(half, whole))) == ""
    assert MEASURE.why_not(Facts(models=(half,))) == "all parameters are bfloat16 already"
    assert MEASURE.why_not(Facts(models=(whole,), grad_scaler=True)) == (
        "the program trains in float16, with a GradScaler, which is for weights in float32"
    )

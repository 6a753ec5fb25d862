"""chunked-cross-entropy: equal to the loss in chunks written by hand, also in models of transformers."""

from __future__ import annotations

import pytest

from dryfit.measures.chunked_cross_entropy import MEASURES
from dryfit.measures.facts import Facts, ModelFacts

from .conftest import PROGRAMS, figures

(MEASURE,) = MEASURES


def test_is_as_written_by_hand(assert_same_bytes) -> None:
    switched, plain = assert_same_bytes(
        "cross_entropy_loop", ["chunked-cross-entropy"], "cross_entropy_by_hand", arguments=("16",)
    )
    assert switched.peak_allocated_bytes < plain.peak_allocated_bytes / 2


def test_is_as_written_by_hand_within_autocast(assert_same_bytes) -> None:
    switched, plain = assert_same_bytes(
        "cross_entropy_loop",
        ["bf16-autocast", "chunked-cross-entropy:32"],
        "cross_entropy_by_hand",
        arguments=("16", "32", "autocast"),
    )
    assert switched.peak_allocated_bytes < plain.peak_allocated_bytes / 2


@pytest.mark.stacks
@pytest.mark.parametrize(("model", "way"), [("gpt2", "loop"), ("llama", "loop"), ("gpt2", "trainer")])
def test_is_as_written_by_hand_in_models_of_transformers(rehearse_stack, model: str, way: str) -> None:
    switched = rehearse_stack("cross_entropy_transformers", model, way, measures=["chunked-cross-entropy"])
    written = rehearse_stack("cross_entropy_transformers", model, way, "by hand")
    assert switched.ending.how in ("steady", "finished"), switched.ending
    assert switched.measures == {"chunked-cross-entropy": True}
    assert figures(switched) == figures(written)


def test_programs_written_by_hand_are_the_snippets() -> None:
    loss = (PROGRAMS / "cross_entropy_chunked.py").read_text().split('"""\n\n')[1]
    assert MEASURE.snippet("pytorch", "8").startswith(loss)
    of_models = (PROGRAMS / "cross_entropy_transformers.py").read_text()
    of_snippet = MEASURE.snippet("transformers", "8").removeprefix(loss).split("# or")[0]
    for line in filter(None, of_snippet.splitlines()):
        assert f"    {line}\n" in of_models


def test_applies_to_large_logits_of_a_linear_layer() -> None:
    large = {"cross_entropy_classes": 50257, "cross_entropy_bytes": 2**30, "cross_entropy_from_linear": True}
    assert MEASURE.why_not(Facts(**large)) == ""
    assert MEASURE.why_not(Facts()) == "no cross-entropy was seen"
    assert MEASURE.why_not(Facts(**large | {"cross_entropy_from_linear": False})) == (
        "the logits of the program's cross-entropy are not what a linear layer returned"
    )
    assert MEASURE.why_not(Facts(**large | {"cross_entropy_bytes": 2**20})) == "the logits are small (1.0 MiB)"
    compiled = ModelFacts(kind="m.M", parameters=1, trainable=1, is_compiled=True)
    assert MEASURE.why_not(Facts(**large, models=(compiled,))) == "torch.compile has compiled the head into the model"
    sharded = ModelFacts(kind="m.M", parameters=1, trainable=1, is_distributed="FSDP2")
    assert MEASURE.why_not(Facts(**large, models=(sharded,))) == (
        "FSDP has the head's weight whole within the model's forward pass alone"
    )

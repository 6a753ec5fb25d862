"""fused-attention: equal to what a person sets in transformers, timm and nn.MultiheadAttention."""

from __future__ import annotations

import pytest

from dryfit.measures.facts import Facts, ModelFacts
from dryfit.measures.fused_attention import MEASURES

from .conftest import figures

(MEASURE,) = MEASURES


def test_is_multihead_attention_without_weights(rehearse) -> None:
    switched = rehearse("attention_multihead", measures=["fused-attention"])
    assert switched.measures == {"fused-attention": True}
    assert figures(switched) == figures(rehearse("attention_multihead", "without weights"))
    assert switched.peak_allocated_bytes < rehearse("attention_multihead").peak_allocated_bytes


def test_weights_that_are_used_are_a_refusal(rehearse) -> None:
    ending = rehearse("attention_multihead", "uses weights", measures=["fused-attention"]).ending
    assert ending.how == "not switched on"
    assert (
        "The program uses the weights that nn.MultiheadAttention returns, and a fused kernel has none. Compute them in "
        "a call of its own, without gradients, where they are shown."
    ) in ending.sentence


@pytest.mark.stacks
@pytest.mark.parametrize(("program", "by_hand"), [("attention_transformers", "sdpa"), ("attention_timm", "fused")])
def test_is_what_a_library_has_for_it(rehearse_stack, program: str, by_hand: str) -> None:
    switched = rehearse_stack(program, measures=["fused-attention"])
    assert switched.measures == {"fused-attention": True}
    assert figures(switched) == figures(rehearse_stack(program, by_hand))


@pytest.mark.stacks
def test_weights_that_a_model_of_transformers_returns_are_a_refusal(rehearse_stack) -> None:
    ending = rehearse_stack("attention_transformers", "eager", "weights", measures=["fused-attention"]).ending
    assert ending.how == "not switched on"
    assert (
        "The program asks LlamaForCausalLM for the attention's weights (output_attentions=True)."
    ) in ending.sentence


def test_applies_where_it_can_be_switched_on() -> None:
    def facts(square_bytes: int = 0, **values: object) -> Facts:
        model = ModelFacts(**{"kind": "m.M", "parameters": 1, "trainable": 1, **values})
        return Facts(models=(model,), attention_square_bytes=square_bytes)

    assert MEASURE.why_not(facts(attention="eager")) == ""
    assert MEASURE.why_not(facts(multihead_with_weights=2)) == ""
    assert MEASURE.why_not(facts(2**20, kind="timm.models.vision_transformer.VisionTransformer")) == ""
    assert MEASURE.why_not(facts(attention="sdpa")) == "no attention was seen whose weights are kept"
    assert MEASURE.why_not(facts(3 * 2**20)) == (
        "the program computes attention in its own code, with a square of 3.0 MiB for each layer; "
        "write F.scaled_dot_product_attention(q, k, v, is_causal=True) in its place"
    )

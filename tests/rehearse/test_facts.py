"""Facts of a program, and its counted FLOPs: against arithmetic, and PyTorch's own counter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dryfit.measures.facts import Facts, facts_from_dict
from dryfit.rehearse.warm import WarmRehearsals, warm_rehearsals

CARD = "sm=80,sms=108,memory=40GiB"
PROGRAM = str(Path(__file__).parent / "programs" / "facts_of.py")

# As in the program.
WIDTH, CLASSES, LAYERS, BATCH = 64, 512, 3, 16
BLOCK_WEIGHTS, HEAD_WEIGHTS = 8 * WIDTH * WIDTH, WIDTH * CLASSES
WEIGHTS = LAYERS * BLOCK_WEIGHTS + HEAD_WEIGHTS
PARAMETERS = WEIGHTS + LAYERS * 5 * WIDTH + CLASSES
FORWARD = 2 * WEIGHTS * BATCH
# Gradients of weights and of inputs, but for the inputs of the first layer, which has none.
STEP = 3 * FORWARD - 2 * BATCH * 4 * WIDTH * WIDTH

FactsOf = Callable[..., Facts]


@pytest.fixture(scope="module")
def warm() -> Iterator[WarmRehearsals]:
    with warm_rehearsals([PROGRAM], gpu=CARD, quiet=True, figures_only=True) as rehearse_one:
        yield rehearse_one


@pytest.fixture
def facts_of(warm: WarmRehearsals) -> FactsOf:
    def find(*words: str, steps: str | None = None) -> Facts:
        result = warm([PROGRAM, *words], facts=True, steps=steps)
        assert result.ending.how in ("steady", "finished"), result.ending
        assert result.facts is not None and not result.facts.failure, result.facts
        assert facts_from_dict(result.facts.to_dict()) == result.facts
        return result.facts

    return find


def test_a_plain_program(facts_of: FactsOf) -> None:
    facts = facts_of("plain")
    (model,), (optimizer,) = facts.models, facts.optimizers
    assert (facts.way, facts.flops, facts.uncounted, facts.host_bytes) == ("pytorch", STEP, (), 0)
    assert (model.kind, model.parameters, model.trainable) == ("__main__.Net", PARAMETERS, PARAMETERS)
    assert (model.parameter_bytes, model.linear_layers) == ({"float32": 4 * PARAMETERS}, 2 * LAYERS + 1)
    assert (model.blocks, model.is_checkpointed, model.is_compiled) == ({"Block": LAYERS}, False, False)
    assert (optimizer.kind, optimizer.parameters, optimizer.tensors) == ("torch.optim.adamw.AdamW", PARAMETERS, 14)
    # `step` of each parameter's state is kept on the host.
    assert (optimizer.state_bytes, optimizer.foreach, optimizer.fused) == (8 * PARAMETERS, True, False)
    assert (facts.cross_entropy_classes, facts.cross_entropy_bytes) == (CLASSES, 4 * BATCH * CLASSES)
    assert facts.cross_entropy_from_linear
    assert (facts.backwards_per_step, facts.gradient_bytes_in_forward) == (1, 0)
    assert (facts.autocast, facts.grad_scaler, facts.has_closure, facts.evaluation_with_graph) == ("",) + 3 * (False,)
    assert (facts.loader_batch, facts.attention_square_bytes, facts.world) == (0, 0, 1)


def test_without_being_asked_there_are_none(warm: WarmRehearsals) -> None:
    assert warm([PROGRAM, "plain"]).facts is None


@pytest.mark.parametrize("stops", ["early", "late"])
def test_checkpointing_costs_a_forward_pass_of_the_blocks(facts_of: FactsOf, stops: str) -> None:
    facts = facts_of("checkpoints", stops)
    again = LAYERS * 2 * BLOCK_WEIGHTS * BATCH
    # Recomputation stops by itself before a block's last layer, of which nothing but the input is kept.
    assert facts.flops == STEP + (again if stops == "late" else again // 2)
    assert facts.models[0].is_checkpointed


def test_a_step_has_all_its_micro_batches(facts_of: FactsOf) -> None:
    facts = facts_of("accumulates")
    assert (facts.flops, facts.backwards_per_step) == (4 * STEP, 4)


def test_an_optimizer_that_is_fused(facts_of: FactsOf) -> None:
    (optimizer,) = facts_of("fused_sgd").optimizers
    assert (optimizer.kind, optimizer.fused, optimizer.foreach) == ("torch.optim.sgd.SGD", True, False)


@pytest.mark.parametrize("kind", ["fused", "square", "multihead"])
def test_attention(facts_of: FactsOf, kind: str) -> None:
    facts = facts_of("attention", kind)
    size = 2 * 4 * 128 * 128
    projections = {"multihead": 4 * WIDTH * WIDTH, "fused": 3 * WIDTH * WIDTH, "square": 3 * WIDTH * WIDTH}[kind]
    # Two products with the square; twice as many in the backward pass, and one more where it is computed anew.
    products = {"fused": 2 + 5, "square": 2 + 4, "multihead": 2 + 4}[kind]
    weights = 2 * projections * 2 * 128
    without_input = 2 if kind != "multihead" else 2 + WIDTH * WIDTH / projections
    assert facts.flops == weights * without_input + products * 2 * size * WIDTH // 4
    assert facts.attention_square_bytes == (0 if kind == "fused" else 4 * size)
    assert facts.models[0].multihead_with_weights == (kind == "multihead")


def test_convolutions(facts_of: FactsOf) -> None:
    facts = facts_of("convolutions")
    first, second = (2 * 2 * 16 * 16 * weights for weights in (8 * 3 * 9, 4 * 8))
    assert (facts.flops, facts.batch_norms) == (2 * first + 3 * second, 1)


def test_says_what_it_cannot_count(facts_of: FactsOf) -> None:
    facts = facts_of("recurrent")
    assert (facts.flops, facts.uncounted) == (0, ("aten::_cudnn_rnn", "aten::_cudnn_rnn_backward"))


def test_a_scaler_under_autocast_with_gradients_that_stay(facts_of: FactsOf) -> None:
    facts = facts_of("scales")
    assert (facts.autocast, facts.grad_scaler, facts.flops) == ("float16", True, STEP)
    assert facts.gradient_bytes_in_forward == 4 * PARAMETERS
    assert (facts.cross_entropy_bytes, facts.cross_entropy_from_linear) == (2 * BATCH * CLASSES, True)
    assert facts.host_bytes == 4  # whether a gradient was infinite


def test_logits_that_no_linear_layer_returned(facts_of: FactsOf) -> None:
    facts = facts_of("soft_capped")
    assert (facts.cross_entropy_classes, facts.cross_entropy_from_linear) == (CLASSES, False)


@pytest.mark.parametrize(("how", "expected"), [("with graph", True), ("without", False), ("throughout", False)])
def test_evaluation(facts_of: FactsOf, how: str, *, expected: bool) -> None:
    facts = facts_of("evaluates", how)
    assert facts.evaluation_with_graph is expected
    assert [model.kind for model in facts.models] == ["__main__.Net"]


def test_a_closure(facts_of: FactsOf) -> None:
    facts = facts_of("closure")
    assert (facts.has_closure, facts.backwards_per_step, facts.flops) == (True, 1, STEP)


@pytest.mark.parametrize("whose", ["torch's", "own"])
def test_the_loader_of_training_batches(facts_of: FactsOf, whose: str) -> None:
    facts = facts_of("loads", whose)
    assert (facts.loader_batch, facts.loader_samplers) == ((16, False) if whose == "torch's" else (0, True))
    assert facts.host_bytes == BATCH * (4 * WIDTH + 8) + 7 * 4 * WIDTH


def test_a_gradient_penalty_accumulates_nothing(facts_of: FactsOf) -> None:
    facts = facts_of("penalises")
    assert facts.backwards_per_step == 1 and facts.flops > STEP


def test_activations_that_are_kept_on_the_host(facts_of: FactsOf) -> None:
    # The input of the Linear and the output of the sigmoid, there and back.
    assert facts_of("keeps_on_host").host_bytes == 2 * 2 * 4 * BATCH * WIDTH


def test_quantised_products_have_formulas_of_ours(facts_of: FactsOf) -> None:
    facts = facts_of("multiplies_integers")
    linear = 2 * BATCH * WIDTH * WIDTH
    assert (facts.flops, facts.uncounted) == (2 * linear + 2 * 2 * BATCH * WIDTH * 8 * WIDTH, ())


def test_beside_a_measure(warm: WarmRehearsals) -> None:
    result = warm([PROGRAM, "plain"], facts=True, measures=["fused-optimizer"])
    assert result.measures == {"fused-optimizer": True}
    assert result.facts is not None
    assert (result.facts.optimizers[0].fused, result.facts.flops) == (True, STEP)


def test_a_program_with_a_counter_of_its_own(facts_of: FactsOf) -> None:
    assert facts_of("counts_itself", steps="all").flops == STEP


def test_a_compiled_model(facts_of: FactsOf) -> None:
    facts = facts_of("compiles")
    (model,) = facts.models
    assert (facts.flops, model.kind, model.is_compiled) == (STEP, "__main__.Net", True)
    assert model.blocks == {"Block": LAYERS}


def test_operators_in_inference_mode_are_taken_apart(facts_of: FactsOf) -> None:
    assert facts_of("infers").flops == STEP + FORWARD


def test_the_trainer_of_transformers(facts_of: FactsOf) -> None:
    facts = facts_of("trainer")
    (model,) = facts.models
    assert (facts.way, facts.autocast, facts.loader_batch, facts.loader_samplers) == (
        "transformers", "bfloat16", 6, False,
    )  # fmt: skip
    assert model.kind == "transformers.models.llama.modeling_llama.LlamaForCausalLM"
    assert (model.is_transformers, model.attention, model.blocks) == (True, "eager", {"LlamaDecoderLayer": 2})
    assert facts.attention_square_bytes == 6 * 4 * 32 * 32 * 4
    assert (facts.cross_entropy_classes, facts.cross_entropy_from_linear) == (512, True)


def test_lightning(facts_of: FactsOf) -> None:
    facts = facts_of("of_lightning")
    assert (facts.way, facts.has_closure, facts.backwards_per_step, facts.loader_batch) == ("lightning", False, 2, 16)
    assert facts.flops == 2 * STEP


def test_accelerate(facts_of: FactsOf) -> None:
    facts = facts_of("accelerates")
    assert (facts.way, facts.autocast, facts.loader_batch) == ("accelerate", "bfloat16", 16)
    assert facts.flops == STEP

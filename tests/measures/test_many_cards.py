"""Measures of programs that train on many cards: equal to the same thing done by hand, as ranks of a world of four."""

from __future__ import annotations

from typing import Any

import pytest

from dryfit.measures.catalogue import measures_of
from dryfit.measures.facts import Facts, ModelFacts, OptimizerFacts
from dryfit.rehearse.result import Result

from .conftest import Rehearse, figures

WORLD = 4
ADAM = OptimizerFacts(kind="torch.optim.adamw.AdamW", parameters=8, tensors=1)
NOT_DDP = "no model of the program is wrapped in DistributedDataParallel"


def seen(result: Result) -> dict[str, Any]:
    """Peaks, phases, and what each step passes to others; of all ranks that were rehearsed."""
    assert result.ending.how == "steady", result.ending
    return figures(result) | {"passed": result.communication, "ranks": result.ranks}


@pytest.mark.parametrize(
    ("measure", "by_hand"),
    [
        ("gradient-as-bucket-view", "view"),
        ("zero-redundancy-optimizer", "zero"),
        ("fsdp-for-ddp", "fsdp"),
        ("freeze-blocks", "frozen"),  # before DDP makes its buckets
        pytest.param("lora:16", "lora", marks=pytest.mark.stacks),
    ],
)
def test_a_program_under_ddp_is_as_written_by_hand(rehearse: Rehearse, measure: str, by_hand: str) -> None:
    ranks = "0,last" if by_hand in ("zero", "fsdp") else "0"
    switched = rehearse("ddp_loop", measures=[measure], world=WORLD, ranks=ranks)
    assert switched.measures == {measure.partition(":")[0]: True}
    assert seen(switched) == seen(rehearse("ddp_loop", by_hand, world=WORLD, ranks=ranks))


@pytest.mark.parametrize(("measure", "word"), [("reshard-after-forward", "kept"), ("reduce-each-micro-batch", "whole")])
def test_a_program_under_fsdp2_is_as_without_the_word(rehearse: Rehearse, measure: str, word: str) -> None:
    switched = rehearse("fsdp2_loop", word, measures=[measure], world=WORLD)
    plain = rehearse("fsdp2_loop", world=WORLD)
    assert switched.measures == {measure: True}
    assert seen(switched) == seen(plain)
    assert rehearse("fsdp2_loop", measures=[measure], world=WORLD).measures == {measure: False}
    kept = rehearse("fsdp2_loop", word, world=WORLD)
    assert kept.peak_allocated_bytes > plain.peak_allocated_bytes
    sent = {name: sum(each.sent_bytes for each in r.communication.values()) for name, r in (("k", kept), ("p", plain))}
    assert sent["k"] < sent["p"]


def test_two_measures_together_are_as_both_by_hand(rehearse: Rehearse) -> None:
    both = rehearse("ddp_loop", measures=["fused-optimizer", "zero-redundancy-optimizer"], world=WORLD)
    assert both.measures == {"fused-optimizer": True, "zero-redundancy-optimizer": True}
    assert seen(both) == seen(rehearse("ddp_loop", "zero", "fused", world=WORLD))


def model(distributed: str = "DDP", **others: Any) -> ModelFacts:
    given: dict[str, Any] = {"kind": "m.M", "parameters": 8, "trainable": 8, "blocks": {"Block": 4}}
    return ModelFacts(is_distributed=distributed, **given | others)


def why_not(name: str, *models: ModelFacts, **others: Any) -> str:
    ((measure, _),) = measures_of([name])
    given: dict[str, Any] = {"optimizers": (ADAM,), "models": models or (model(),), "world": WORLD}
    return measure.why_not(Facts(**given | others))


def test_which_programs_they_apply_to() -> None:
    for name in ("gradient-as-bucket-view", "zero-redundancy-optimizer", "fsdp-for-ddp"):
        assert why_not(name) == ""
    assert why_not("fsdp-for-ddp", model(blocks={}, layers={"Linear": 8})) == ""
    assert why_not("reshard-after-forward", model("FSDP2")) == ""
    assert why_not("reduce-each-micro-batch", model("FSDP2"), backwards_per_step=2) == ""


@pytest.mark.parametrize(
    ("name", "models", "others", "sentence"),
    [
        ("gradient-as-bucket-view", [model("")], {}, NOT_DDP),
        (
            "gradient-as-bucket-view", [model(has_bucket_views=True)], {},
            "the gradients are views of DDP's buckets already",
        ),
        (
            "gradient-as-bucket-view", [model()], {"way": "transformers"},
            "transformers' Trainer makes DDP itself, and TrainingArguments have no word for this",
        ),
        (
            "zero-redundancy-optimizer", [model()], {"world": 1},
            "the program has one rank, and there is nobody to share the optimizer's states with",
        ),
        (
            "zero-redundancy-optimizer", [model("FSDP2")], {},
            "the optimizer's states are shared out among the ranks already, by FSDP2",
        ),
        (
            "zero-redundancy-optimizer", [model()], {"way": "accelerate"},
            "Accelerate saves the optimizer's states itself, and of a ZeroRedundancyOptimizer no rank has them all",
        ),
        ("fsdp-for-ddp", [model("")], {}, NOT_DDP),
        (
            "fsdp-for-ddp", [model()], {"way": "lightning"},
            "Lightning shards a model by settings of its own; rehearse it with these, as ranks of a --world",
        ),
        (
            "fsdp-for-ddp", [model(blocks={})], {},
            "nothing in the model is repeated, and a model sharded as a whole is gathered as a whole",
        ),
        (
            "fsdp-for-ddp", [model(trainable=4)], {},
            "a part of the model is frozen, and FSDP2 wants to be told which blocks hold it",
        ),
        ("reshard-after-forward", [model()], {}, "no model of the program is sharded by FSDP2 (fully_shard)"),
        (
            "reduce-each-micro-batch", [model("FSDP2")], {"backwards_per_step": 1},
            "each step has one backward pass, which is reduced",
        ),
    ],
)  # fmt: skip
def test_why_one_does_not_apply(name: str, models: list[ModelFacts], others: dict[str, Any], sentence: str) -> None:
    assert why_not(name, *models, **others) == sentence


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        (
            "early_optimizer",
            "an optimizer was made of the model's parameters before DistributedDataParallel got the model",
        ),
        ("hook", "the program registers a hook for DDP's reduction of gradients"),
        ("own_class", "the program wraps its model in Wrapped, a class of its own that is a DDP"),
    ],
)
def test_what_fsdp_cannot_take_the_place_of(rehearse: Rehearse, program: str, sentence: str) -> None:
    refused = rehearse("ddp_otherwise", program, measures=["fsdp-for-ddp"], world=WORLD)
    assert refused.ending.how == "not switched on"
    assert sentence in refused.ending.sentence


def test_a_sharded_model_answers_as_ddp(rehearse: Rehearse) -> None:
    done = rehearse("ddp_otherwise", "module_and_no_sync", measures=["fsdp-for-ddp"], world=WORLD)
    assert done.ending.how == "steady", done.ending
    assert done.communication["reduce-scatter"].calls == 2 * (4 + 1)  # both micro-batches, blocks and what is around

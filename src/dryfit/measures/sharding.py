"""How a person shards a model with FSDP2: each repeated block, and the model around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dryfit.measures.blocks import repeated_blocks, repeated_layers
from dryfit.measures.facts import Facts, ModelFacts
from dryfit.measures.measure import LIGHTNING, PYTORCH, TRANSFORMERS

if TYPE_CHECKING:
    import torch


def why_not_sharded(facts: Facts, models: Sequence[ModelFacts]) -> str:
    """Why these models of a program cannot be sharded as here, if so."""
    if facts.way != PYTORCH:
        names = {TRANSFORMERS: "transformers' Trainer", LIGHTNING: "Lightning"}
        return (
            f"{names.get(facts.way, 'Accelerate')} shards a model by settings of its own; rehearse it with these, as "
            "ranks of a --world"
        )
    if not any(model.blocks or model.layers for model in models):
        return "nothing in the model is repeated, and a model sharded as a whole is gathered as a whole"
    return ""


def units_of(model: torch.nn.Module) -> list[torch.nn.Module]:
    """The modules that are gathered one at a time: repeated blocks, or layers where these alone are repeated."""
    return repeated_blocks(model) or repeated_layers(model)


def can_be_sharded(model: torch.nn.Module) -> bool:
    """Whether there is something to be gathered one at a time, and all of it is trained."""
    return bool(units_of(model)) and all(each.requires_grad for each in model.parameters())


def shard(model: torch.nn.Module) -> None:
    """Spread a model over the ranks of the process group that there is; it is moved to the card part by part."""
    fully_shard = _fully_shard()
    for unit in units_of(model):
        fully_shard(unit)
    fully_shard(model)


def _fully_shard() -> Any:
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:  # before torch 2.6
        from torch.distributed._composable.fsdp import fully_shard  # type: ignore[attr-defined]
    return fully_shard

"""Activation checkpointing of a model's repeated blocks: all of them, every second one, or all but matrix products."""

from __future__ import annotations

import functools
import inspect
import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dryfit.measures.blocks import repeated_blocks
from dryfit.measures.facts import Facts
from dryfit.measures.measure import Measure, changes_nothing
from dryfit.measures.moments import Moments

if TYPE_CHECKING:
    import torch

# What takes long to compute, among the operators a block runs; of torch 2.4 to 2.14.
_KEPT = (
    "mm",
    "addmm",
    "bmm",
    "convolution",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
)

# Two moves with the momentum m' leave (1 - m')² of what was there: as much as one with m = 1 - (1 - m')².
_BATCH_NORMS = (
    "Batch norms inside the blocks move their running statistics, which only evaluation reads, twice a step; with "
    "their momentum m set to 1 - (1 - m)**0.5 they are what they were."
)


def _why_not(facts: Facts) -> str:
    with_blocks = [model for model in facts.models if model.blocks]
    if not with_blocks:
        return "nothing in the program's model is repeated, so there are no blocks to checkpoint"
    if all(model.is_checkpointed for model in with_blocks):
        return "the program's model is checkpointed already"
    return ""


def _no_context() -> dict[str, Any]:
    return {}


def _keeping_products() -> dict[str, Any]:
    import torch
    from torch.utils.checkpoint import create_selective_checkpoint_contexts

    kept = [getattr(torch.ops.aten, name).default for name in _KEPT if hasattr(torch.ops.aten, name)]
    return {"context_fn": functools.partial(create_selective_checkpoint_contexts, kept)}


def _switch(*, every: int = 1, context: Callable[[], dict[str, Any]] = _no_context) -> Callable[[Moments, str], None]:
    def switch_on(moments: Moments, _: str) -> None:
        known: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()  # in models that have been seen to

        def checkpoint_model(model: torch.nn.Module, *_: Any) -> None:
            if model in known or not _is_trained(model):
                return
            settings = {"use_reentrant": False, **context()}
            for each in _of_transformers(model):
                if _checkpoints_itself(each):
                    known.update(each.modules())
                elif _enable(each, settings, every):
                    known.update(each.modules())
                    moments.acts()
            blocks = [block for block in repeated_blocks(model) if not any(each in known for each in block.modules())]
            for block in blocks[::every]:
                _checkpoint(block, settings)
                moments.acts()
            known.update(model.modules())

        moments.when_model_is_called(checkpoint_model)

    return switch_on


def _is_trained(model: torch.nn.Module) -> bool:
    import torch

    return model.training and torch.is_grad_enabled() and any(each.requires_grad for each in model.parameters())


def _checkpoint(block: torch.nn.Module, settings: dict[str, Any]) -> None:
    from torch.utils.checkpoint import checkpoint

    block.forward = functools.partial(checkpoint, block.forward, **settings)


def _of_transformers(model: torch.nn.Module) -> list[Any]:
    """The outermost models of transformers in it that can checkpoint themselves."""
    library = sys.modules.get("transformers.modeling_utils")
    if library is None:
        return []
    found: list[Any] = []
    for module in model.modules():
        is_inside = any(module is inner for outer in found for inner in outer.modules())
        if isinstance(module, library.PreTrainedModel) and module.supports_gradient_checkpointing and not is_inside:
            found.append(module)
    return found


def _checkpoints_itself(model: Any) -> bool:
    return any(getattr(module, "gradient_checkpointing", False) for module in model.modules())


def _enable(model: Any, settings: dict[str, Any], every: int) -> bool:
    """Have a model of transformers checkpoint its layers, as its Trainer does; whether it can for every n-th of them.

    It then also has the embeddings' output want gradients, which frozen ones' does not, and uses no cache of keys and
    values. Where it cannot, its blocks are checkpointed as any model's, and the cache is all that is to be done.
    """
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    if every == 1:
        enable(settings)
    elif "every_n_layers" in inspect.signature(enable).parameters:
        enable(settings, every_n_layers=every)
    else:
        model.config.use_cache = False
        return False
    return True


_IMPORTS = """
import functools
from torch.utils.checkpoint import checkpoint
"""
_EACH_BLOCK = """
for module in model.modules():
    if isinstance(module, {blocks}):
        module.forward = functools.partial(checkpoint, module.forward, use_reentrant=False)
"""
_EVERY_SECOND = """
blocks = [module for module in model.modules() if isinstance(module, {blocks})]
for block in blocks[::2]:
    block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
"""
_KEEPING = """
import functools
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

aten = torch.ops.aten
kept = [
    aten.mm.default,
    aten.addmm.default,
    aten.bmm.default,
    aten.convolution.default,
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_cudnn_attention.default,
]
keep = functools.partial(create_selective_checkpoint_contexts, kept)
"""
_EACH_BLOCK_KEEPING = """
for module in model.modules():
    if isinstance(module, {blocks}):
        module.forward = functools.partial(checkpoint, module.forward, use_reentrant=False, context_fn=keep)
"""
_IN_TRANSFORMERS = "# a model of transformers has it built in: model.gradient_checkpointing_enable("

MEASURES = (
    Measure(
        name="checkpoint-every-second",
        title="checkpointing of every second block",
        what="Every second block keeps its inputs alone, and is computed once more in the backward pass.",
        group="checkpointing",
        why_not=_why_not,
        changes=changes_nothing,
        switch_on=_switch(every=2),
        snippets={
            "pytorch": _IMPORTS + _EVERY_SECOND + _IN_TRANSFORMERS + '{"use_reentrant": False}, every_n_layers=2)',
            "transformers": "TrainingArguments(..., gradient_checkpointing=True, gradient_checkpointing_kwargs="
            '{"use_reentrant": False, "every_n_layers": 2})',
        },
        not_counted=_BATCH_NORMS,
    ),
    Measure(
        name="checkpoint-selective",
        title="checkpointing of blocks, matrix products kept",
        what="Blocks keep their inputs and what matrix products, convolutions and attention returned; the rest is "
        "computed once more in the backward pass, which costs few FLOPs.",
        group="checkpointing",
        why_not=_why_not,
        changes=changes_nothing,
        switch_on=_switch(context=_keeping_products),
        snippets={
            "pytorch": _KEEPING
            + _EACH_BLOCK_KEEPING
            + _IN_TRANSFORMERS
            + '{"use_reentrant": False, "context_fn": keep})',
            "transformers": _KEEPING
            + 'model.gradient_checkpointing_enable({"use_reentrant": False, "context_fn": keep})',
        },
        not_counted=_BATCH_NORMS,
    ),
    Measure(
        name="checkpoint-blocks",
        title="checkpointing of all blocks",
        what="Every block keeps its inputs alone, and is computed once more in the backward pass.",
        group="checkpointing",
        why_not=_why_not,
        changes=changes_nothing,
        switch_on=_switch(),
        snippets={
            "pytorch": _IMPORTS + _EACH_BLOCK + _IN_TRANSFORMERS + '{"use_reentrant": False})',
            "transformers": "TrainingArguments(..., gradient_checkpointing=True, gradient_checkpointing_kwargs="
            '{"use_reentrant": False})',
        },
        not_counted=_BATCH_NORMS,
    ),
)

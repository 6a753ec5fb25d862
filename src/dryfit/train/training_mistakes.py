"""Mistakes that show in a model before it trains, and in its first gradients."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator

import torch.utils.checkpoint
from torch import nn

from dryfit.train.batch_norms import name_layers, warn_of_batch_norms


class TrainingMistakeWarning(UserWarning):
    """The model is about to be trained in a way that costs memory or gradients without a sign of it."""


def warn_of_mistakes(model: nn.Module, accumulation_steps: int) -> None:
    """Warn of BatchNorm under accumulation, of a cache beside checkpointing, and of reentrant checkpointing."""
    warn_of_batch_norms([model], accumulation_steps)
    caching = list(dict.fromkeys(_with_cache_beside_checkpointing(model)))
    if caching:
        warnings.warn(
            f"use_cache is on in {name_layers(caching)} while its blocks are checkpointed: keys and values that no "
            f"training step reads are kept, or the setting is changed without a word. Set model.config.use_cache = "
            f"False for training, and True again to generate.",
            TrainingMistakeWarning,
            stacklevel=3,
        )
    reentrant = reentrant_blocks(model)
    if reentrant:
        warnings.warn(
            f"Reentrant checkpointing at {name_layers(reentrant)}: a block whose inputs need no gradient, as behind "
            f"frozen embeddings or with LoRA, trains nothing, without an error. Give "
            f"gradient_checkpointing_kwargs={{'use_reentrant': False}}.",
            TrainingMistakeWarning,
            stacklevel=3,
        )


def warn_of_missing_gradients(model: nn.Module) -> None:
    """Warn of trainable parameters without a gradient, where reentrant checkpointing can be what left them out."""
    trainable = {name: each for name, each in model.named_parameters() if each.requires_grad}
    missing = [name for name, each in trainable.items() if each.grad is None]
    # None at all is what wrappers leave that keep gradients elsewhere.
    if missing and len(missing) < len(trainable) and reentrant_blocks(model):
        warnings.warn(
            f"{len(missing)} of {len(trainable)} trainable tensors got no gradient in the first step: "
            f"{name_layers(missing)}. Reentrant checkpointing gives none where a block's inputs need none. Give "
            f"gradient_checkpointing_kwargs={{'use_reentrant': False}}.",
            TrainingMistakeWarning,
            stacklevel=3,
        )


def reentrant_blocks(model: nn.Module) -> list[str]:
    """The blocks that transformers checkpoints with `use_reentrant=True`, or without saying, which means that."""
    found = []
    for name, module in model.named_modules():
        function = getattr(module, "_gradient_checkpointing_func", None)
        given = function.keywords if isinstance(function, functools.partial) else {}
        known = function.func if isinstance(function, functools.partial) else function
        if (
            getattr(module, "gradient_checkpointing", False)
            and known is torch.utils.checkpoint.checkpoint
            and given.get("use_reentrant") is not False
        ):
            found.append(name or "the model itself")
    return found


def _with_cache_beside_checkpointing(model: nn.Module) -> Iterator[str]:
    for module in model.modules():
        if getattr(getattr(module, "config", None), "use_cache", False) is True and any(
            getattr(each, "gradient_checkpointing", False) is True for each in module.modules()
        ):
            yield type(module).__name__
            return

"""Models that are checkpointed already, by whatever has done it: a second time would compute blocks once more."""

from __future__ import annotations

import functools

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from dryfit.errors import UsageError
from dryfit.train.checkpointed_forward import CheckpointedForward


def require_not_checkpointed(model: nn.Module) -> None:
    """Refuse a model of which any part is checkpointed.

    Raises:
        UsageError: it is; the message says where, by what, and how to undo it.
    """
    for name, module in model.named_modules():
        how = _how(module)
        if how:
            raise UsageError(
                f"{type(model).__name__} is checkpointed already, at {name or 'the model itself'}: {how}. Twice would "
                f"compute it again twice."
            )


def require_left_to_us(module: nn.Module, args: tuple[object, ...]) -> None:
    """Before the forward of a module with checkpointed blocks in it: refuse a training in which it checkpoints itself.

    Transformers 4.51 leaves it to the module around the blocks, 5 to the blocks.
    """
    if module.training and torch.is_grad_enabled() and getattr(module, "gradient_checkpointing", False) is True:
        raise UsageError(
            f"Blocks of {type(module).__name__} were checkpointed a second time, by gradient_checkpointing_enable() or "
            f"a Trainer's gradient_checkpointing=True, so each backward would compute them twice more. Leave one of "
            f"the two out."
        )


def _how(module: nn.Module) -> str:
    forward = vars(module).get("forward")
    if isinstance(forward, CheckpointedForward):
        return "by checkpoint_blocks, here or before it was copied; call undo() on what that gave first"
    if isinstance(forward, functools.partial) and forward.func is checkpoint:
        return "its forward was replaced by torch.utils.checkpoint; leave that out"
    if getattr(module, "gradient_checkpointing", False) is True:
        return "by transformers; call model.gradient_checkpointing_disable() first, or keep that and leave this out"
    if getattr(module, "grad_checkpointing", False) is True:
        return "by its own setting; call model.set_grad_checkpointing(False) first, or keep that and leave this out"
    if type(module).__name__ == "CheckpointWrapper":
        return "by torch.distributed's checkpoint_wrapper; leave that out"
    return ""

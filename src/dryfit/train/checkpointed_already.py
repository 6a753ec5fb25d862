"""Models that are checkpointed already, by whatever has done it: a second time would compute blocks once more."""

from __future__ import annotations

import functools

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

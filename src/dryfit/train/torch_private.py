"""The private names of torch that this room uses; checked on 2.6 and 2.14."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def version_of(tensor: torch.Tensor) -> int:
    """How often a tensor was changed in place, as autograd counts; 0 for inference tensors, of which nothing counts it.

    PyTorch's notes on autograd mechanics name `_version`, for debugging.
    """
    return 0 if tensor.is_inference() else tensor._version


def factor_of(result: torch.Tensor) -> tuple[float, Any] | None:
    """What a number was divided by, or multiplied by the inverse of, as its last operation, and the node before it.

    PyTorch's notes on autograd mechanics name `_saved_other` and its like, for looking at what a graph keeps.
    """
    node = result.grad_fn
    kind = "" if node is None else node.name()
    other = getattr(node, "_saved_other", None)
    # One on a card is no constant of the program's, and to read it is to wait for the card.
    if node is None or not isinstance(other, torch.Tensor) or other.dim() or other.device.type != "cpu":
        return None
    before = node.next_functions[0][0]
    if kind == "DivBackward0":
        return float(other), before
    return (1 / float(other), before) if kind == "MulBackward0" and other else None


def mesh_of_fsdp2(module: nn.Module) -> Any:
    """The DeviceMesh over which a module of FSDP2 averages its gradients; None where that is not known.

    That of its parameters may have more dimensions, of tensor parallelism.
    """
    state = getattr(module, "_get_fsdp_state", lambda: None)()
    group = getattr(state, "_fsdp_param_group", None)  # None where all parameters are in modules inside
    return getattr(getattr(group, "mesh_info", None), "mesh", None)


def is_unscaled(scaler: Any, optimizer: Any) -> bool:
    """Whether a GradScaler has unscaled this optimizer's gradients since its last update."""
    state = getattr(scaler, "_per_optimizer_states", {}).get(id(optimizer))
    return state is not None and state["stage"].name == "UNSCALED"


def written_by(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors that a call of an operator changes in place, as its schema says."""
    schema = operator._schema
    if not schema.is_mutable:
        return []
    given = {**dict(zip((each.name for each in schema.arguments), args, strict=False)), **kwargs}
    written = [given.get(each.name) for each in schema.arguments if each.alias_info and each.alias_info.is_write]
    return [each for each in written if isinstance(each, torch.Tensor)]


def has_lasting_buffers(module: nn.Module) -> bool:
    """Whether any buffer is of the state_dict, as running statistics and counters are; tables for masks are not."""
    return any(
        name not in each._non_persistent_buffers_set
        for each in module.modules()
        for name, _ in each.named_buffers(recurse=False)
    )

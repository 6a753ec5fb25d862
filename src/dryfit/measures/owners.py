"""The models that own parameters: what a program has at the moment it makes an optimizer of them."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dryfit.measures.moments import CannotSwitchOn, WantedOptimizer

if TYPE_CHECKING:
    import torch


def owners(parameters: Iterable[torch.Tensor]) -> list[torch.nn.Module]:
    """The outermost modules that hold any of these parameters, those with most parameters first.

    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    >>> owners([model[1].bias]) == [model]
    True

    Every module that Python's collector knows is looked at, so that it does not matter where a program keeps its own.
    """
    import torch

    wanted = {id(parameter) for parameter in parameters}
    # By type, as `isinstance` would ask objects of the program's that answer for another one.
    modules = [each for each in gc.get_objects() if issubclass(type(each), torch.nn.Module)]
    modules = [module for module in modules if "_modules" in module.__dict__]  # made as far as its own `__init__`
    held = {id(child) for module in modules for child in module.children()}
    roots = [module for module in modules if id(module) not in held]
    numbers = {id(root): sum(id(each) in wanted for each in root.parameters()) for root in roots}
    return sorted((root for root in roots if numbers[id(root)]), key=lambda root: -numbers[id(root)])


def unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    """The model itself, where it is wrapped by `torch.compile`, DDP or a framework's class for it alone."""
    while True:
        inner = model._modules.get("_orig_mod") or model._modules.get("module")
        if inner is None or len(model._modules) > 1:
            return model
        model = inner


def keep_trainable(wanted: WantedOptimizer) -> None:
    """Leave out of an optimizer's groups what needs no gradient any more.

    Raises:
        CannotSwitchOn: nothing is left in it.
    """
    for group in wanted.groups:
        if isinstance(group, dict):
            members = group["params"] if isinstance(group["params"], list) else [group["params"]]
            group["params"] = [member for member in members if _is_trainable(member)]
    wanted.groups = [each for each in wanted.groups if isinstance(each, dict) or _is_trainable(each)]
    if not wanted.parameters:
        raise CannotSwitchOn(
            f"all parameters of an optimizer of the program's, {wanted.kind.__name__}, would be frozen; leave out that "
            "optimizer, or train its part of the model too."
        )


def _is_trainable(member: Any) -> bool:
    parameter = member[1] if isinstance(member, tuple) else member
    return bool(parameter.requires_grad)

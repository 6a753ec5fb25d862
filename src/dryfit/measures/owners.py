"""The models that own parameters: what a program has at the moment it makes an optimizer of them."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import TYPE_CHECKING

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

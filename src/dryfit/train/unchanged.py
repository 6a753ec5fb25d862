"""What a block that is computed again has to find as its first computation found it: its inputs and its weights."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from dryfit.train.torch_private import version_of


class Unchanged:
    """Notes named tensors, to say later which of them were changed in place since."""

    def __init__(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        self._noted = [(name, tensor, version_of(tensor)) for name, tensor in tensors]

    def changed(self) -> list[str]:
        """The names of those that were changed."""
        return [name for name, tensor, version in self._noted if version_of(tensor) != version]


def with_own_containers(given: Any) -> Any:
    """The same arguments in lists and dicts of their own, which nothing adds to; of other classes, as they are.

    >>> features = [1]
    >>> kept = with_own_containers({"features": features})
    >>> features.append(2)
    >>> kept
    {'features': [1]}
    """
    if type(given) in (list, tuple):
        return type(given)(map(with_own_containers, given))
    if type(given) is dict:
        return {key: with_own_containers(each) for key, each in given.items()}
    return given

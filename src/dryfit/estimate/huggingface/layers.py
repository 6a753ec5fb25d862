"""The layers that shapes are made of, and reading what a config says of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dryfit.estimate.model import Role, Tensor

_MOST_LAYERS = 10_000
_MOST_SIZE = 1 << 32


class WrongConfig(Exception):
    """A value of the config that no model can have, in words."""


@dataclass(slots=True, kw_only=True)
class Shapes:
    """The parameters of a model of class `kind`, gathered layer by layer in the order of `parameters()`."""

    kind: str
    tensors: list[Tensor] = field(default_factory=list)

    def add(self, name: str, *shape: int, role: Role = "other", attention: bool = False, casts: bool = False) -> None:
        self.tensors.append(Tensor(name=name, shape=shape, role=role, attention=attention, autocasts=casts))

    def linear(self, name: str, into: int, out: int, *, bias: bool = True, attention: bool = False) -> None:
        self.add(f"{name}.weight", out, into, role="linear", attention=attention, casts=True)
        if bias:
            self.add(f"{name}.bias", out, casts=True)

    def transposed_linear(self, name: str, into: int, out: int, *, attention: bool = False) -> None:
        """GPT-2's Conv1D, which keeps its weight as (in, out)."""
        self.add(f"{name}.weight", into, out, role="transposed linear", attention=attention, casts=True)
        self.add(f"{name}.bias", out, casts=True)

    def embedding(self, name: str, rows: int, width: int, *, is_head_too: bool = False) -> None:
        """`is_head_too`: the output layer of the model shares it, so that autocast casts it there."""
        self.add(f"{name}.weight", rows, width, role="embedding", casts=is_head_too)

    def head(self, name: str, into: int, out: int, *, bias: bool = False) -> None:
        self.add(f"{name}.weight", out, into, role="head", casts=True)
        if bias:
            self.add(f"{name}.bias", out, casts=True)

    def norm(self, name: str, width: int, *, bias: bool = True) -> None:
        self.add(f"{name}.weight", width)
        if bias:
            self.add(f"{name}.bias", width)


def size(config: Mapping[str, Any], key: str, default: int) -> int:
    """A size of the model; `default` is that of transformers' class, which a saved config leaves out.

    Raises:
        WrongConfig: it is no positive whole number.
    """
    value = config.get(key)
    if value is None:
        return default
    most = _MOST_LAYERS if "layer" in key else _MOST_SIZE
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise WrongConfig(f'"{key}" is {value!r}, and a whole number from 1 to {most:,} was expected.')
    return value


def yes(config: Mapping[str, Any], key: str, default: bool) -> bool:
    """Whether the config says so; `default` is that of transformers' class.

    Raises:
        WrongConfig: it is neither true nor false.
    """
    value = config.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise WrongConfig(f'"{key}" is {value!r}, and true or false was expected.')
    return value


def label_count(config: Mapping[str, Any]) -> int:
    """The number of classes of a classifier: transformers writes them as "id2label" and reads "num_labels", too."""
    labels = config.get("id2label")
    return len(labels) if isinstance(labels, Mapping) and labels else size(config, "num_labels", 2)


def head_width(config: Mapping[str, Any], hidden: int, heads: int) -> int:
    """What one attention head has: said, or its share of the hidden size.

    Raises:
        WrongConfig: the heads do not divide the hidden size.
    """
    if config.get("head_dim") is not None:
        return size(config, "head_dim", 0)
    if hidden % heads:
        raise WrongConfig(f"{heads} attention heads do not divide a hidden size of {hidden}; one of the two is wrong.")
    return hidden // heads

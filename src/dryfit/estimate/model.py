"""What an estimate is made of: a model as the shapes of its tensors, or as a count of parameters alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Literal

from dryfit.recording.rounding import round_up

Role = Literal["linear", "transposed linear", "embedding", "head", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One parameter or buffer: its shape, the bytes of an element, and what the layer it belongs to does with it.

    >>> Tensor(name="fc.weight", shape=(10, 20), role="linear").elements
    200

    `role` is "linear" for the weight of a linear layer inside the model, (out, in), "transposed linear" for one kept
    as (in, out), "head" for that of the output layer of a language model. `attention` says that it lies in an attention
    block, `autocasts` that autocast makes a 16-bit copy of it, `floating` that its dtype can be chosen.
    """

    name: str
    shape: tuple[int, ...]
    itemsize: int = 4
    role: Role = "other"
    attention: bool = False
    autocasts: bool = False
    floating: bool = True
    trained: bool = True

    @property
    def elements(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model to be estimated; `parameters` in the order in which an optimizer is given them.

    `found` says in words what it is and where the shapes are from. Without `shapes_known` there is one parameter, a
    vector that stands for all, and nothing is rounded to the allocator's blocks. `config_dtype` is what a config.json
    names.
    """

    given: str
    found: str
    parameters: tuple[Tensor, ...]
    buffers: tuple[Tensor, ...] = ()
    shapes_known: bool = True
    config_dtype: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def parameter_count(self) -> int:
        return sum(tensor.elements for tensor in self.parameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The parameters an optimizer is given, those that are trained."""

    tensors: tuple[Tensor, ...]
    shapes_known: bool

    def block_bytes(self, elements: int, itemsize: int) -> int:
        """What the allocator gives for a tensor: whole blocks of 512 bytes, where the shapes are known."""
        return round_up(elements * itemsize) if self.shapes_known else elements * itemsize

    def sizes(self) -> list[int]:
        """The bytes of a tensor like each parameter, in order."""
        return [self.block_bytes(tensor.elements, tensor.itemsize) for tensor in self.tensors]

    def only(self, tensors: Iterable[Tensor]) -> Seen:
        return Seen(tensors=tuple(tensors), shapes_known=self.shapes_known)

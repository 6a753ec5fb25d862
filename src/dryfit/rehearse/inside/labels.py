"""Says whose tensors lie where on a card: the labels of a recording, noted while the program runs."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

from dryfit.recording import model
from dryfit.rehearse.inside import fsdp_private, names, tensors
from dryfit.rehearse.inside.deepspeed_private import SHARD
from dryfit.rehearse.inside.names import Names, joined

Position = tuple[int, ...]
"""For each device, how many allocations, frees and failures its allocator has counted."""


class LabelAt(NamedTuple):
    """The allocation at an address of a device, as it is at a position, belongs to an owner."""

    position: Position
    device: int
    address: int
    owner: str
    name: str
    dtype: str
    shape: tuple[int, ...]


class Labels:
    """The labels of one process, in the order they were given; none of them keeps a tensor alive."""

    def __init__(self) -> None:
        self.names = Names()
        # One list of all fields: objects that stay would have Python's garbage collector run at other times than it
        # would without us, and with it the end of tensors in reference cycles.
        self._fields: list[Any] = []
        self._shapes: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._sharded: dict[int, weakref.ref[Any]] = {}  # modules under FSDP2

    @property
    def given(self) -> list[LabelAt]:
        """All labels so far."""
        field = iter(self._fields)
        return [LabelAt(*fields) for fields in zip(*[field] * len(LabelAt._fields), strict=True)]

    def inputs(self, position: Position, args: Any) -> None:
        """Label the tensors that a model is called with."""
        self._give(position, model.INPUT, tensors.tensors_in(args))

    def model(self, position: Position, module: Any) -> None:
        """Name a model's parts, and label its parameters, its buffers, and what else its modules keep."""
        self.names.name_model(module)
        for _, part in names.modules_of(module):
            path = self.names.path_of(part) or ""
            if fsdp_private.is_sharded(part):
                self._sharded[id(part)] = weakref.ref(part)
            parameters = names.parameters_of(part)
            named = [(self.names.parameter_name(p) or joined(path, key), p) for key, p in parameters]
            self._give(position, model.PARAMETER, named)
            buffers = (getattr(part, "_buffers", None) or {}).items()
            self._give(position, model.BUFFER, [(joined(path, name), b) for name, b in buffers if b is not None])
            self._attributes(position, path, part)
            for name, parameter in parameters:
                # A quantised weight keeps its scales as attributes of itself, or of an object that it keeps.
                self._attributes(position, joined(path, name), parameter)
                for key, value in _attributes_of(parameter):
                    if not isinstance(value, (type, torch.nn.Module)):
                        self._attributes(position, joined(path, f"{name}.{key}"), value)

    def gradients(self, position: Position, parameters: Iterable[tuple[str, Any]]) -> None:
        """Label the gradients of these parameters, given with their names."""
        # torch warns of looking for one where none is kept
        grads = ((name, p.grad) for name, p in parameters if p.is_leaf or p.retains_grad)
        self._give(position, model.GRADIENT, ((name, grad) for name, grad in grads if grad is not None))

    def whole_gradients(self, position: Position) -> None:
        """Label the gradients of sharded parameters that no pass has reduced yet: no parameter's `grad` is one."""
        for module in filter(None, (reference() for reference in self._sharded.values())):
            for holder, key, gradient in fsdp_private.whole_gradients(module):
                name = joined(self.names.path_of(holder) or "", key)
                self._give(position, model.GRADIENT, [(name, gradient)])

    def states(self, position: Position, optimizer: Any, parameters: Iterable[tuple[str, Any]]) -> None:
        """Label the states that an optimizer has, and those of its parameters that are of no module."""
        name_of = {}
        for name, parameter in parameters:
            name_of[id(parameter)] = name
            if self.names.parameter_name(parameter) is None:
                self._give(position, model.PARAMETER, [(name, parameter)])
        # Looked through, and not asked for a parameter: in a list, that would compare tensors.
        kept = optimizer.state
        for of, state in list(dict.items(kept)) if isinstance(kept, dict) else [("state", kept)]:
            name = name_of.get(id(of), of if isinstance(of, str) else "")
            found = tensors.tensors_in(state)
            self._give(position, model.OPTIMIZER_STATE, ((_of(name, key), tensor) for key, tensor in found))

    def _attributes(self, position: Position, path: str, of: Any) -> None:
        for key, value in _attributes_of(of):
            found = [tensor for _, tensor in tensors.tensors_in(value) if self.names.parameter_name(tensor) is None]
            owner = model.PARAMETER if key == SHARD else model.BUFFER
            self._give(position, owner, ((joined(path, key), tensor) for tensor in found))

    def _give(self, position: Position, owner: str, found: Iterable[tuple[str, Any]]) -> None:
        give, the_same, on_card = self._fields.extend, self._shapes.setdefault, tensors.on_card
        for name, tensor in found:
            for device, address, dtype, shape in on_card(tensor):
                give((position, device, address, owner, name, dtype, the_same(shape, shape)))


def _attributes_of(of: Any) -> list[tuple[str, Any]]:
    """The public attributes of an object that has them in a dict, past `__getattr__` of the program's."""
    try:
        kept = object.__getattribute__(of, "__dict__")
    except AttributeError:
        return []
    return [(key, value) for key, value in list(kept.items()) if isinstance(key, str) and not key.startswith("_")]


def _of(name: str, key: str) -> str:
    return f"{key} of {name}" if name and key else key or name

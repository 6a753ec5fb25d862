"""Says whose tensors lie where on a card: the labels of a recording, noted while the program runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from dryfit.recording import model
from dryfit.rehearse.inside import tensors, torch_private
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
        self.given: list[LabelAt] = []

    def inputs(self, position: Position, args: Any) -> None:
        """Label the tensors that a model is called with."""
        self._give(position, model.INPUT, tensors.tensors_in(args))

    def model(self, position: Position, module: Any) -> None:
        """Name a model's parts, and label its parameters, its buffers, and what else its modules keep."""
        self.names.name_model(module)
        self._give(position, model.PARAMETER, self.names.parameters())
        for part in module.modules():
            path = self.names.path_of(part) or ""
            buffers = ((joined(path, name), buffer) for name, buffer in part._buffers.items() if buffer is not None)
            self._give(position, model.BUFFER, buffers)
            self._attributes(position, path, vars(part))
            for name, parameter in part._parameters.items():
                # A quantised weight keeps its scales as attributes of itself, or of an object that it keeps.
                kept = getattr(parameter, "__dict__", {})
                self._attributes(position, joined(path, name), kept)
                for key, value in kept.items():
                    if not isinstance(value, type):
                        self._attributes(position, joined(path, f"{name}.{key}"), getattr(value, "__dict__", {}))

    def gradients(self, position: Position, parameters: Iterable[tuple[str, Any]]) -> None:
        """Label the gradients of these parameters, given with their names."""
        self._give(position, model.GRADIENT, ((name, p.grad) for name, p in parameters if p.grad is not None))

    def states(self, position: Position, optimizer: Any, parameters: Iterable[tuple[str, Any]]) -> None:
        """Label the states that an optimizer has of these parameters, and those of them that are of no module."""
        for name, parameter in parameters:
            if self.names.parameter_name(parameter) is None:
                self._give(position, model.PARAMETER, [(name, parameter)])
            if parameter in optimizer.state:
                found = tensors.tensors_in(optimizer.state[parameter])
                self._give(position, model.OPTIMIZER_STATE, ((f"{key} of {name}", state) for key, state in found))

    def _attributes(self, position: Position, path: str, attributes: dict[str, Any]) -> None:
        for key, value in list(attributes.items()):
            if not key.startswith("_"):
                found = ((joined(path, key), tensor) for _, tensor in tensors.tensors_in(value))
                self._give(position, model.BUFFER, found)

    def _give(self, position: Position, owner: str, found: Iterable[tuple[str, Any]]) -> None:
        # The program's modes and subclasses have no say in where a tensor lies.
        with torch_private.without_torch_function():
            for name, tensor in found:
                for at in tensors.on_card(tensor):
                    self.given.append(LabelAt(position, at.device, at.address, owner, name, at.dtype, at.shape))

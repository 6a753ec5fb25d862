"""Keeps what the recording of this process is made of: the allocator's own events, and marks and labels among them.

The allocator records its events by itself. Where among them a mark or a label belongs is known from its own counts of
allocations, frees and failures: the n-th of them is one event of the recording and no other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from dryfit.recording import model
from dryfit.rehearse.inside import tensors, torch_private
from dryfit.rehearse.inside.names import Names

Position = tuple[int, ...]
"""For each device, how many allocations, frees and failures its allocator has counted."""

# A model is looked through on its first calls: some make their parameters, or have them replaced, in the first.
_CALLS_TO_LOOK_AT = 2
_STEPS_TO_LOOK_AT = 2


class MarkAt(NamedTuple):
    """The program is in this step and phase from a position on."""

    position: Position
    step: int
    phase: str
    autocast: bool


class LabelAt(NamedTuple):
    """The allocation at an address of a device, as it is at a position, belongs to an owner."""

    position: Position
    device: int
    address: int
    owner: str
    name: str
    dtype: str
    shape: tuple[int, ...]


class Recorder:
    """Notes marks and labels while the program runs."""

    def __init__(self) -> None:
        self._read, _ = torch_private.memory_statistics()
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget everything, as in a forked child."""
        self.names = Names()
        self.marks = [MarkAt((), 0, model.SETUP, False)]
        self.labels: list[LabelAt] = []
        self.outputs: dict[str, model.ModuleOutput] = {}
        self._step, self._phase = 0, model.SETUP
        self._model_returned: Position | None = None
        self._calls: dict[str, int] = {}
        self._steps_of: dict[int, int] = {}

    # --- marks ---------------------------------------------------------------------------------------------------

    def enter(self, step: int, phase: str) -> None:
        """The program begins a phase. What came after the model's return and before backward was the loss."""
        if phase == model.BACKWARD and self._phase == model.FORWARD and self._model_returned:
            self._mark(model.LOSS, self._model_returned)
        self._step = step
        self._model_returned = None
        self._mark(phase, self._position())

    def pass_through(self, phase: str) -> Callable[[], None]:
        """The program begins a part of its phase, such as zero_grad; the function returned ends it."""
        before = self._phase
        self._mark(phase, self._position())
        return lambda: self._mark(before, self._position())

    def data_is_fetched(self) -> None:
        """The program asks for the next batch, outside a forward or backward pass."""
        if self._phase not in (model.FORWARD, model.BACKWARD, model.EVALUATION, model.DATA):
            self._mark(model.DATA, self._position())

    def see_autocast(self) -> None:
        """Note whether autocast has been switched on or off since the last mark."""
        if torch_private.is_autocast_enabled() != self.marks[-1].autocast:
            self._mark(self._phase, self._position())

    def _mark(self, phase: str, position: Position) -> None:
        self._phase = phase
        self.marks.append(MarkAt(position, self._step, phase, torch_private.is_autocast_enabled()))

    def _position(self) -> Position:
        if not torch_private.cuda_is_initialized():
            return ()
        return tuple(torch_private.counted_events(self._read(device)) for device in range(torch_private.device_count()))

    @property
    def counted(self) -> int:
        """How many allocations, frees and failures the allocators had counted at the last mark."""
        return sum(self.marks[-1].position)

    # --- models --------------------------------------------------------------------------------------------------

    def model_is_called(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A module is called that no other module calls: the model, or a loss."""
        position = self._position()
        self._label(position, model.INPUT, tensors.tensors_in((*args, kwargs)))
        path = self.names.path_of(module)
        if path is None:
            self.names.name_model(module)
            path = self.names.path_of(module) or ""
        calls = self._calls[path] = self._calls.get(path, 0) + 1
        if calls <= _CALLS_TO_LOOK_AT:
            self.names.name_model(module)
            self._label_model(position, module)

    def model_returned(self, module: Any) -> None:
        """It has returned; from here on it is the loss, unless another model is called."""
        if next(module.parameters(), None) is not None:
            self._model_returned = self._position()

    @property
    def looks_at_outputs(self) -> bool:
        """Whether modules' outputs are still of interest: shapes seldom change after the first steps."""
        return self._step <= _STEPS_TO_LOOK_AT

    def module_returned(self, path: str, kind: str, output: Any) -> None:
        """A module gave this back; kept are the type and shape of its first tensor."""
        for _, tensor in tensors.tensors_in(output):
            dtype = tensors.name_of_dtype(tensor.dtype)
            self.outputs[path] = model.ModuleOutput(path, kind, dtype, tuple(tensor.shape))
            return
        self.outputs.setdefault(path, model.ModuleOutput(path, kind))

    def _label_model(self, position: Position, module: Any) -> None:
        self._label(position, model.PARAMETER, self.names.parameters())
        for part in module.modules():
            path = self.names.path_of(part) or ""
            buffers = [(_joined(path, name), buffer) for name, buffer in part._buffers.items() if buffer is not None]
            self._label(position, model.BUFFER, buffers)
            plain = [(key, value) for key, value in vars(part).items() if not key.startswith("_")]
            self._label_attributes(position, path, plain)
            for name, parameter in part._parameters.items():
                if parameter is not None and vars(parameter):
                    self._label_attributes(position, _joined(path, name), list(vars(parameter).items()), deeper=True)

    def _label_attributes(
        self, position: Position, path: str, attributes: list[tuple[str, Any]], *, deeper: bool = False
    ) -> None:
        """Label tensors that a module or a parameter (of bitsandbytes, say) keeps as plain attributes."""
        for key, value in attributes:
            found = ((_joined(path, key), tensor) for _, tensor in tensors.tensors_in(value))
            self._label(position, model.BUFFER, found)
            if deeper and hasattr(value, "__dict__") and not isinstance(value, type):
                self._label_attributes(position, _joined(path, key), list(vars(value).items()))

    # --- gradients and optimisers --------------------------------------------------------------------------------

    def backward_is_over(self) -> None:
        """Label the gradients that backward has left."""
        self._label_gradients(self.names.parameters())

    def optimizer_begins(self, optimizer: Any) -> None:
        """Label the gradients of parameters of no module; those of modules' are labelled, but within a backward."""
        known = self.names.parameter_name if self._phase != model.BACKWARD else lambda _: None
        self._label_gradients((name, p) for name, p in self._parameters_of(optimizer) if known(p) is None)

    def optimizer_ended(self, optimizer: Any) -> None:
        """Label the states of an optimiser that has stepped."""
        steps = self._steps_of[id(optimizer)] = self._steps_of.get(id(optimizer), 0) + 1
        if steps > _STEPS_TO_LOOK_AT:
            return
        position = self._position()
        for name, parameter in self._parameters_of(optimizer):
            if self.names.parameter_name(parameter) is None:
                self._label(position, model.PARAMETER, [(name, parameter)])
            states = optimizer.state.get(parameter) if parameter in optimizer.state else None
            for key, state in tensors.tensors_in(states):
                self._label(position, model.OPTIMIZER_STATE, [(f"{key} of {name}", state)])

    def _parameters_of(self, optimizer: Any) -> list[tuple[str, Any]]:
        found, unnamed = [], 0
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                name = self.names.parameter_name(parameter)
                if name is None:
                    unnamed += 1
                    name = f"parameter {unnamed}"
                found.append((name, parameter))
        return found

    def _label_gradients(self, parameters: Any) -> None:
        gradients = [(name, p.grad) for name, p in parameters if p.grad is not None]
        if gradients:
            self._label(self._position(), model.GRADIENT, gradients)

    def _label(self, position: Position, owner: str, found: Any) -> None:
        for name, tensor in found:
            for at in tensors.on_card(tensor):
                self.labels.append(LabelAt(position, at.device, at.address, owner, name, at.dtype, at.shape))


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name

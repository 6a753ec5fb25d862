"""Keeps what the recording of this process has beside the allocator's own events: marks and labels among them.

The allocator records its events by itself. Where among them a mark or a label belongs is known from its own counts of
allocations, frees and failures: the n-th of them is one event of the recording and no other.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

from dryfit.recording import model
from dryfit.rehearse.inside import tensors, torch_private
from dryfit.rehearse.inside.identities import Identities
from dryfit.rehearse.inside.labels import Labels, Position
from dryfit.rehearse.inside.names import has_parameters

# A model is looked through on its first calls: some make their parameters, or have them replaced, in the first. An
# optimizer has all its states after its first steps, and shapes seldom change after those.
_TIMES_TO_LOOK = 2
_NOT_WHILE_FETCHING = (model.FORWARD, model.LOSS, model.BACKWARD, model.EVALUATION, model.DATA)


class MarkAt(NamedTuple):
    """The program is in this step and phase from a position on."""

    position: Position
    step: int
    phase: str
    autocast: bool


class Recorder:
    """Notes marks and labels while the program runs.

    `on_position(counted)` is called now and then with what the allocators have counted altogether, and says whether to
    go on. Where something here fails, `failure` says what, nothing more is noted, and the rehearsal goes on: its
    figures do not depend on this.
    """

    def __init__(self, on_position: Callable[[int], bool]) -> None:
        self._read, _ = torch_private.memory_statistics()
        self.is_autocast_enabled = torch_private.autocast_query()
        self._on_position = on_position
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget everything, as in a forked child."""
        self.labels = Labels()
        self.marks = [MarkAt((), 0, model.SETUP, False)]
        self.outputs: dict[str, model.ModuleOutput] = {}
        self.autocast = False
        self.failure: str | None = None
        self.goes_on = self.looks_at_outputs = True
        self._step, self._phase = 0, model.SETUP
        self._around: list[str] = []
        self._counted_before: dict[int, int] = {}
        self._calls: Identities[int] = Identities()
        self._steps_of: Identities[int] = Identities()
        self._named_of: Identities[int] = Identities()

    def failed(self) -> None:
        """An exception of our own is being handled: keep it, and note nothing more."""
        self.failure = self.failure or traceback.format_exc()
        self.goes_on = False

    # --- marks ---------------------------------------------------------------------------------------------------

    def enter(self, step: int, phase: str) -> None:
        """The program begins a phase."""
        self._step = step
        self.looks_at_outputs = step <= _TIMES_TO_LOOK
        self._mark(phase, self._checked_position())

    def begin_part(self, phase: str) -> None:
        """The program begins a part of its phase, such as zero_grad."""
        self._around.append(self._phase)
        self._mark(phase, self.position())

    def end_part(self) -> None:
        """The part that began last is over, and its phase goes on."""
        self._mark(self._around.pop(), self.position())

    def data_is_fetched(self) -> None:
        """The program asks for the next batch, outside a forward or backward pass."""
        if self._phase not in _NOT_WHILE_FETCHING:
            self._mark(model.DATA, self.position())

    def autocast_changed(self) -> None:
        """Autocast has been switched on or off since the last mark."""
        self._mark(self._phase, self.position())

    def position(self) -> Position:
        """Where the allocators are now."""
        if not torch_private.cuda_is_initialized():
            return ()
        return tuple(self._counted(device) for device in range(torch_private.device_count()))

    def counts_are_reset(self, device: int) -> None:
        """The program has an allocator begin to count anew."""
        self._counted_before[device] = self._counted(device)

    def _counted(self, device: int) -> int:
        return torch_private.counted_events(self._read(device)) + self._counted_before.get(device, 0)

    def _checked_position(self) -> Position:
        position = self.position()
        self.goes_on = self._on_position(sum(position))
        return position

    def _mark(self, phase: str, position: Position) -> None:
        self._phase, self.autocast = phase, self.is_autocast_enabled()
        self.marks.append(MarkAt(position, self._step, phase, self.autocast))

    # --- models --------------------------------------------------------------------------------------------------

    def model_is_called(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A module is called that no other module calls: the model, or a loss."""
        position = self._checked_position()
        if self._phase == model.LOSS and has_parameters(module):
            self._mark(model.FORWARD, position)
        self.labels.inputs(position, (*args, kwargs))
        calls = self._calls.get(module) or 0
        if calls < _TIMES_TO_LOOK:
            self.labels.model(position, module)
            self._calls.put(module, calls + 1)

    def model_returned(self, module: Any) -> None:
        """It has returned; from here on it is the loss, until another model is called or backward begins."""
        if self._phase == model.FORWARD and has_parameters(module):
            self._mark(model.LOSS, self.position())

    def module_returned(self, path: str, kind: str, output: Any) -> None:
        """A module gave this back; kept are the type and shape of its first tensor."""
        for _, tensor in tensors.tensors_in(output):
            dtype = tensors.name_of_dtype(tensor.dtype)
            self.outputs[path] = model.ModuleOutput(path, kind, dtype, tensors.shape_of(tensor))
            return
        self.outputs.setdefault(path, model.ModuleOutput(path, kind))

    # --- gradients and optimizers --------------------------------------------------------------------------------

    def backward_is_over(self) -> None:
        """Label the gradients that backward has left."""
        position = self.position()
        self.labels.gradients(position, self.labels.names.parameters())
        self.labels.whole_gradients(position)

    def optimizer_begins(self, optimizer: Any) -> None:
        """Label gradients that the end of a backward pass has not: of no module's parameters, or within the pass."""
        count = sum(len(group["params"]) for group in optimizer.param_groups)
        if self._phase != model.BACKWARD and self._named_of.get(optimizer) == count:
            return
        name_of, parameters = self.labels.names.parameter_name, self._parameters_of(optimizer)
        of_no_module = [pair for pair in parameters if name_of(pair[1]) is None]
        self._named_of.put(optimizer, count - len(of_no_module))
        self.labels.gradients(self.position(), parameters if self._phase == model.BACKWARD else of_no_module)

    def optimizer_ended(self, optimizer: Any) -> None:
        """Label the states of an optimizer that has stepped."""
        steps = self._steps_of.get(optimizer) or 0
        if steps < _TIMES_TO_LOOK:
            self._steps_of.put(optimizer, steps + 1)
            self.labels.states(self.position(), optimizer, self._parameters_of(optimizer))

    def _parameters_of(self, optimizer: Any) -> list[tuple[str, Any]]:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        name_of = self.labels.names.parameter_name
        return [(name_of(parameter) or f"parameter {i}", parameter) for i, parameter in enumerate(parameters)]

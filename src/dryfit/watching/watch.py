"""`dryfit.watch`: a live run's peaks by step and phase, and what keeps its memory."""

from __future__ import annotations

import time
import warnings
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from dryfit.findings import Finding
from dryfit.recording import model as phases
from dryfit.watching import out_of_memory, summary
from dryfit.watching.live_hooks import listen
from dryfit.watching.observer import Observer
from dryfit.watching.rounds import Rounds
from dryfit.watching.step_peaks import StepMeter, StepPeaks
from dryfit.watching.torch_private import has_memory_history, record_memory_history

_FIRST_STEPS = 5
_SHARE_OF_TIME = 0.005
_MOST_EVENTS = 200_000


class MemoryFindingWarning(UserWarning):
    """Something of the program costs memory that it need not, as `dryfit.watch` has seen."""


def watch(
    model: Any = None,
    optimizer: Any = None,
    *,
    on_finding: Callable[[Finding], None] | None = None,
    peaks: bool = True,
    snapshot: str | Path | None = None,
) -> Watch:
    """Watch a training loop while it runs: its peaks by step and phase, and what keeps its memory, by name and line.

        with dryfit.watch(model, optimizer) as watching:
            for batch in loader:
                ...
        print(watching)             # one screen: what is held, what each number means, the peak of each phase
        watching.findings           # such as DF101: total_loss keeps the graph of every step, train.py:41

    Models and optimizers (one, or several) are found as they are used; given here, what they hold is told apart in the
    text, and an optimizer that was made before is known from its first step on. Each finding is warned of once, by
    `MemoryFindingWarning`, or handed to `on_finding`.

    Without CUDA or XPU the host's memory and graphs alone are watched. `peaks` restarts PyTorch's own peak counts at
    each change of phase, so `torch.cuda.max_memory_allocated()` within the block counts from there; False leaves them
    alone. `snapshot` has the CUDA allocator keep its last 200,000 events, which costs a few microseconds for each, and
    names the file to which they are saved if memory runs out.

    An out-of-memory error within the block is explained on stderr, and goes on as it is. Looks at all Python objects
    are taken after the first five steps, and later ones take less than 1 % of the time. Nothing else is changed, and an
    error of dryfit's own ends the watching with a warning, not the training.
    """
    return Watch(
        models=_all_of(model),
        optimizers=_all_of(optimizer),
        on_finding=on_finding,
        peaks=peaks,
        snapshot=None if snapshot is None else Path(snapshot),
    )


class Watch:
    """The watching of one block of code; `watch` makes it. After the block all that was seen stays."""

    def __init__(
        self,
        *,
        models: list[Any],
        optimizers: list[Any],
        on_finding: Callable[[Finding], None] | None,
        peaks: bool,
        snapshot: Path | None,
    ) -> None:
        self._models = [weakref.ref(each) for each in models]
        self._optimizers = [weakref.ref(each) for each in optimizers]
        self._on_finding, self._snapshot = on_finding, snapshot
        self._budget = _Budget()
        self._observer = Observer(is_live=True, may_take_census=self._budget.allows, tell=self._tell)
        self._rounds = Rounds()
        self._peaks = peaks
        self._meter: StepMeter | None = None
        self._steps = 0
        self._has_warned, self._is_over = False, False
        self._end_listening: Callable[[], None] | None = None
        self._end_history: Callable[[], None] | None = None

    def __enter__(self) -> Watch:
        if self._end_listening is not None:
            raise RuntimeError("This watch is running already; dryfit.watch(...) makes one for each block.")
        try:
            self._meter = StepMeter(restarts=self._peaks)
            if self._snapshot is not None and torch.cuda.is_available() and not has_memory_history():
                self._end_history = record_memory_history(_MOST_EVENTS)
            for reference in self._optimizers:
                optimizer = reference()
                if optimizer is not None:
                    self._rounds.made(optimizer)
                    self._observer.optimizer_made(optimizer)
            self._end_listening = listen(_Listening(self))
        except Exception as error:
            self._give_up(error)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_over = True
        try:
            if error is not None and out_of_memory.is_one(error):
                out_of_memory.explain(error, self, self._snapshot)
            self._settle()
        except Exception as failure:
            self._give_up(failure)
        finally:
            self._leave()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was found so far; at the end of the block also what only its end makes certain."""
        return self._observer.findings(is_over=self._is_over)

    @property
    def steps(self) -> tuple[StepPeaks, ...]:
        """The last hundred steps that are over: of each its time, and its peaks by phase and device, in bytes."""
        return tuple(self._meter.steps) if self._meter is not None else ()

    @property
    def step(self) -> int:
        """How many steps are over."""
        return self._steps

    @property
    def phase(self) -> str:
        """The phase the loop is in, by the names of `StepPeaks.phases`."""
        return self._meter.phase if self._meter is not None else phases.SETUP

    @property
    def failure(self) -> str:
        """The traceback of an error of dryfit's own, which ended the watching; "" if there was none."""
        return self._observer.failure

    def settle_peaks(self) -> None:
        """Count the peaks of the step at hand among the highest, though it is not over."""
        if self._meter is not None:
            self._meter.settle(self._steps + 1)

    def __str__(self) -> str:
        return summary.of(
            steps=self._steps,
            meter=self._meter,
            findings=self.findings,
            models=[each for reference in self._models if (each := reference()) is not None],
            optimizers=[each for reference in self._optimizers if (each := reference()) is not None],
        )

    # --- what it is told, by `_Listening` --------------------------------------------------------------------------

    def _begins(self, phase: str) -> None:
        """Begin a phase; a forward pass, or a backward without one, after all optimizers stepped begins a step, too."""
        if self._rounds.is_complete:
            self._end_step()
        if self._meter is not None:
            self._meter.enter(phase)

    def _optimizer_begins(self, optimizer: Any) -> None:
        if self._rounds.begins_anew_with(optimizer):
            self._end_step()
        if self._meter is not None:
            self._meter.enter(phases.OPTIMIZER_STEP)

    def _optimizer_ended(self, optimizer: Any) -> None:
        if self._meter is not None:
            self._meter.enter(phases.AFTER_STEP)
        self._rounds.stepped(optimizer)

    def _end_step(self) -> None:
        self._rounds.begin()
        self._steps += 1
        if self._meter is not None:
            self._meter.end_step(self._steps)
        with self._budget:
            self._observer.step_is_over(self._steps)

    def _settle(self) -> None:
        """The block is over, and perhaps in the middle of a step."""
        if self._rounds.is_complete:
            self._end_step()
        self._observer.findings(is_over=True)  # which tells of each

    def _tell(self, finding: Finding) -> None:
        if self._on_finding is not None:
            self._on_finding(finding)
            return
        message = f"{finding.code}: {finding.claim} {finding.advice}"
        place = finding.place
        if place is None:
            warnings.warn(message, MemoryFindingWarning, stacklevel=2)
        else:
            warnings.warn_explicit(message, MemoryFindingWarning, place.file, place.line)

    def _give_up(self, error: Exception) -> None:
        """Say once that we failed, and be quiet from then on."""
        self._leave()
        if self._has_warned:
            return
        self._has_warned = True
        try:
            warnings.warn(
                f"dryfit.watch has failed and is off, and the program goes on without it: {type(error).__name__}: "
                f"{error}. Please report it.",
                RuntimeWarning,
                stacklevel=3,
            )
        except RuntimeWarning:  # where warnings are errors, this one is not to be the program's
            return

    def _leave(self) -> None:
        end_listening, self._end_listening = self._end_listening, None
        end_history, self._end_history = self._end_history, None
        for end in (end_listening, end_history):
            if end is not None:
                end()


class _Listening:
    """Passes on what the hooks tell; whatever goes wrong ends the watching and goes no further."""

    def __init__(self, watch: Watch) -> None:
        self._watch, self._observer = watch, watch._observer

    def model_called(self, module: Any, args: Any, kwargs: Any) -> None:
        self._guarded(self._watch._begins, phases.FORWARD if torch.is_grad_enabled() else phases.EVALUATION)
        self._guarded(self._observer.model_called, module, args, kwargs)

    def model_returned(self, module: Any, output: Any) -> None:
        self._guarded(self._observer.model_returned, module, output)

    def backward_begins(self, tensors: Any, retain_graph: bool | None, create_graph: bool) -> None:
        self._guarded(self._watch._begins, phases.BACKWARD)
        self._guarded(self._observer.backward_begins, tensors, retain_graph, create_graph)

    def backward_is_over(self, *, has_failed: bool) -> None:
        if not has_failed:  # where memory runs out in it, that is the phase
            self._guarded(self._watch._begins, phases.AFTER_BACKWARD)
        self._guarded(self._observer.backward_is_over)

    def optimizer_made(self, optimizer: Any) -> None:
        self._guarded(self._watch._rounds.made, optimizer)
        self._guarded(self._observer.optimizer_made, optimizer)

    def optimizer_begins(self, optimizer: Any) -> None:
        self._guarded(self._watch._optimizer_begins, optimizer)
        self._guarded(self._observer.optimizer_begins, optimizer)

    def optimizer_ended(self, optimizer: Any) -> None:
        self._guarded(self._watch._optimizer_ended, optimizer)
        self._guarded(self._observer.optimizer_ended, optimizer)

    def _guarded(self, do: Callable[..., None], *args: Any) -> None:
        if self._watch._end_listening is None and self._watch._has_warned:
            return
        try:
            do(*args)
            if self._observer.failure and not self._watch._has_warned:
                raise RuntimeError(self._observer.failure.strip().splitlines()[-1])
        except Exception as error:
            self._watch._give_up(error)


class _Budget:
    """Allows the first looks at all objects, and later ones, each at twice the step of the last, by their time.

    A context manager around each end of a step, which is what it measures.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._spent_seconds = 0.0
        self._next_step = 2 * _FIRST_STEPS
        self._entered = 0.0

    def __enter__(self) -> None:
        self._entered = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._spent_seconds += time.monotonic() - self._entered

    def allows(self, step: int) -> bool:
        if step <= _FIRST_STEPS:
            return True
        if step < self._next_step or self._spent_seconds > _SHARE_OF_TIME * (time.monotonic() - self._began):
            return False
        self._next_step = 2 * step
        return True


def _all_of(given: Any) -> list[Any]:
    if given is None:
        return []
    if isinstance(given, Iterable) and not isinstance(given, torch.nn.Module):
        return list(given)
    return [given]

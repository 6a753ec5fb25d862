"""Told of what a program does, comes to findings: leaks with their holder and line, evaluations with a graph."""

from __future__ import annotations

import functools
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from dryfit.findings import Finding
from dryfit.watching.census import take_census
from dryfit.watching.kinds.allocator import Allocator
from dryfit.watching.kinds.autocast import Autocast
from dryfit.watching.kinds.dataset import Dataset
from dryfit.watching.kinds.errors import Errors
from dryfit.watching.kinds.evaluation import Evaluation
from dryfit.watching.kinds.kept import Kept
from dryfit.watching.kinds.kind import Kind
from dryfit.watching.kinds.optimizers import Optimizers
from dryfit.watching.situation import Situation
from dryfit.watching.torch_private import without_torch_function

_UNEXPLAINED = ("DF114", "DF115")

_Method = TypeVar("_Method", bound=Callable[..., Any])


def _at_first_and_then_rarely(step: int) -> bool:
    return step <= 8 or step & (step - 1) == 0


def _guarded(method: _Method) -> _Method:
    """Have an error of ours end the observing, and not the program; modes and subclasses of its own see nothing."""

    @functools.wraps(method)
    def guarded(self: Observer, *args: Any) -> Any:
        if self.failure or torch.compiler.is_compiling():
            return None
        try:
            with self._lock, without_torch_function():
                return method(self, *args)
        except Exception:
            self.failure = traceback.format_exc()
            return None

    return guarded  # type: ignore[return-value]


class Observer:
    """What is seen of one process's training; whoever hooks torch tells it of what happens.

        observer = Observer()
        observer.model_called(model, args, kwargs)      # and so on, as it happens
        observer.step_is_over(1)
        observer.findings()

    It has to be told on the thread, and below the frames, of the program's own call: it looks at their variables. It
    keeps no tensor alive and raises nothing; after an error of its own it is quiet, and `failure` has the traceback.

    `may_take_census(step)` says whether an expensive look (about 0.3 s for each million Python objects) may be taken
    after a step; without it one is after each of the first eight, and then at each doubling. `is_live` says whether the
    host computes: then the process's host memory is followed, too. `tell` is called with each finding once, as it is
    met.
    """

    def __init__(
        self,
        *,
        is_live: bool = False,
        may_take_census: Callable[[int], bool] | None = None,
        tell: Callable[[Finding], None] | None = None,
    ) -> None:
        self.failure = ""
        self._is_live = is_live
        self._may_take_census, self._tell = may_take_census or _at_first_and_then_rarely, tell
        self._lock = threading.RLock()
        self._situation = Situation()
        self._kinds: list[Kind] = [
            Errors(self._situation),
            Kept(self._situation),
            Evaluation(self._situation),
            Optimizers(self._situation),
            Dataset(self._situation),
            Autocast(self._situation),
            Allocator(self._situation, is_live=is_live),
        ]
        self._found: dict[tuple[Any, ...], Finding] = {}
        self._has_optimizer, self._own_steps = False, 0

    @_guarded
    def model_called(self, module: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """A module is about to be called that no other module calls; before its forward pass."""
        self._situation.model_called(module)
        if not self._has_optimizer and self._situation.backwards_in_step:  # a loop that changes the weights by itself
            self._own_steps += 1
            self._end_step(self._own_steps)
        for kind in self._kinds:
            kind.model_called(module, args, kwargs)
        self._gather()

    @_guarded
    def model_returned(self, module: Any, output: Any) -> None:
        """That call has given its output."""
        for kind in self._kinds:
            kind.model_returned(module, output)

    @_guarded
    def backward_begins(self, tensors: Any, retain_graph: bool | None, create_graph: bool) -> None:
        """Autograd's engine is about to run, for `backward` or `grad`; the arguments are the engine's own."""
        self._situation.backward_begins(retain_graph, create_graph)
        for kind in self._kinds:
            kind.backward_begins(tensors)

    @_guarded
    def backward_is_over(self) -> None:
        """The engine has run, or failed; of passes within passes the outermost."""
        for kind in self._kinds:
            kind.backward_is_over()

    @_guarded
    def optimizer_made(self, optimizer: Any) -> None:
        """An optimizer has been made."""
        self._has_optimizer = True
        for kind in self._kinds:
            kind.optimizer_made(optimizer)

    @_guarded
    def optimizer_begins(self, optimizer: Any) -> None:
        """An optimizer's step is about to run."""
        self._has_optimizer = True
        for kind in self._kinds:
            kind.optimizer_begins(optimizer)
        self._gather()

    @_guarded
    def optimizer_ended(self, optimizer: Any) -> None:
        """It has run."""
        for kind in self._kinds:
            kind.optimizer_ended(optimizer)

    @_guarded
    def step_is_over(self, step: int) -> None:
        """A training step is over, counted from 1; at the same point of each: best where the next forward begins."""
        self._end_step(step)

    @_guarded
    def needs_more_steps(self) -> bool:
        """Whether something grows that a few more steps would confirm: a rehearsal then goes on.

        Asked once after each step, as it counts for how many it has held the rehearsal up.
        """
        wants = [kind.needs_more_steps() for kind in self._kinds]  # each counts its own, so all are asked
        return any(wants)

    def findings(self, *, is_over: bool = True) -> tuple[Finding, ...]:
        """What has been found so far, each kind and holder once.

        With `is_over` also what is certain only if the program ends here: an evaluation that nothing comes after.
        """
        self._take_pending(is_over)
        found = self._found.values()
        return tuple(each for each in found if each.code not in _UNEXPLAINED or not self._is_explained(each))

    def _end_step(self, step: int) -> None:
        self._situation.step_is_over(step)
        census = take_census() if self._takes_census(step) else None
        for kind in self._kinds:
            kind.step_is_over(step, census)
        self._gather()

    def _takes_census(self, step: int) -> bool:
        if self._situation.has_several_threads:
            return False
        if self._may_take_census(step) or any(kind.needs_census(step) for kind in self._kinds):
            return True
        return not self._is_live and any(kind.wants_census(step) for kind in self._kinds)

    def _gather(self) -> None:
        for kind in self._kinds:
            found, kind.found = kind.found, []
            for finding in found:
                self._take(finding)

    @_guarded
    def _take_pending(self, is_over: bool) -> None:
        self._gather()
        for kind in self._kinds if is_over else ():
            for finding in kind.pending():
                self._take(finding)

    def _take(self, finding: Finding) -> None:
        """Keep a finding unless it was met before, or is one of growth whose holder another one has named."""
        place = finding.place
        key = (finding.code, finding.evidence.holder, place and (place.file, place.line))
        if key in self._found or (finding.code in _UNEXPLAINED and self._is_explained(finding)):
            return  # met before, or of a growth whose holder is known
        self._found[key] = finding
        if self._tell is not None:
            self._tell(finding)

    def _is_explained(self, finding: Finding) -> bool:
        return any(
            each.evidence.bytes_per_step and each.evidence.memory == finding.evidence.memory
            for each in self._found.values()
            if each.code not in _UNEXPLAINED
        )

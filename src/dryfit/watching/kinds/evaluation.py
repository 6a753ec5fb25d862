"""An evaluation that builds a graph (DF201), keeps losses with theirs (DF101), or gathers outputs on the card (DF202).

A run of calls of one model without a backward pass between them is an evaluation where no backward pass goes through
it later: whether one does is seen by walking the graph that the next one begins with. Many train in evaluation mode,
and many evaluate without it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from dryfit.findings import Evidence, Finding, Place
from dryfit.findings.finding import DEVICE, HOST
from dryfit.units import format_bytes
from dryfit.watching.census import take_census
from dryfit.watching.device_memory import allocated_bytes
from dryfit.watching.frames import is_in_pipeline, program_place
from dryfit.watching.graphs import reaches
from dryfit.watching.growth import Growth
from dryfit.watching.kinds.kept import is_suspicious, search, take_in
from dryfit.watching.kinds.kind import Kind
from dryfit.watching.situation import Situation
from dryfit.watching.torch_private import next_sequence_number

_LEAST_CALLS = 4
_LEAST_CALLS_IN_TRAINING_MODE = 8
_LOOKED_AT_CALLS = 6  # the intervals that confirm a growth, and those at both ends
_LOOKED_AT_RUNS = 4


@dataclass(slots=True)
class _Run:
    """Calls of one model in one mode. `looked_until` is autograd's number as the last of those looked at was over."""

    model: weakref.ref[Any]
    is_in_training_mode: bool
    growth: Growth
    began: int
    looked_until: int
    calls: int = 0
    calls_with_graph: int = 0
    place: Place | None = None
    allocated_before: int = 0
    graph_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)


class Evaluation(Kind):
    """Follows the calls of a model that no backward pass comes between."""

    def __init__(self, situation: Situation) -> None:
        super().__init__(situation)
        self._run: _Run | None = None
        self._runs_looked_at = {False: 0, True: 0}  # in evaluation mode, and in training mode
        self._trained: weakref.WeakSet[Any] = weakref.WeakSet()  # by one backward pass after several calls

    def model_called(self, module: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        is_model = next(module.parameters(), None) is not None and not is_in_pipeline()
        run = self._run_of(module) if is_model else None
        if run is None:  # a loss, a second model, or a stage with its micro-batches
            return
        run.calls += 1
        if 1 < run.calls <= _LOOKED_AT_CALLS:
            run.looked_until = next_sequence_number()
            self._look(run)
        if 1 < run.calls <= _LEAST_CALLS and torch.is_grad_enabled():  # most runs are a training step's one call
            run.place = program_place()
            run.allocated_before = allocated_bytes()

    def model_returned(self, module: Any, output: Any) -> None:
        run = self._run
        if run is None or run.model() is not module or not torch.is_grad_enabled():
            return
        if any(each.requires_grad for each in _tensors_in(output)) and _is_trained(module):
            run.calls_with_graph += 1
            if 1 < run.calls <= _LEAST_CALLS:
                run.graph_bytes = max(run.graph_bytes, allocated_bytes() - run.allocated_before)

    def backward_begins(self, tensors: Any) -> None:
        run, self._run = self._run, None
        if run is None or not self._shown_by(run):
            return
        if reaches(tensors, run.began, run.looked_until):
            model = run.model()
            if model is not None:
                self._trained.add(model)
        else:
            self.found += self._shown_by(run)

    def pending(self) -> list[Finding]:
        return self._shown_by(self._run) if self._run is not None else []

    def _run_of(self, module: Any) -> _Run | None:
        """The run that a call belongs to; None if it is of a second model in the same loop."""
        run = self._run
        if run is not None and run.is_in_training_mode == module.training and run.model() is not None:
            return run if run.model() is module else None
        if run is not None and not run.is_in_training_mode:
            self.found += self._shown_by(run)
        mark = next_sequence_number()
        self._run = _Run(weakref.ref(module), module.training, Growth(mark), mark, mark)
        return self._run

    def _look(self, run: _Run) -> None:
        """Compare what lives with what did before the last batch."""
        model = run.model()
        if (
            self.situation.has_several_threads
            or model is None
            or model in self._trained
            or (run.is_in_training_mode and not torch.is_grad_enabled())
        ):
            return
        if run.calls == 2:
            self._runs_looked_at[run.is_in_training_mode] += 1
        if self._runs_looked_at[run.is_in_training_mode] > _LOOKED_AT_RUNS:
            return  # of what is done again and again, a few tell
        census = take_census()
        graphs = take_in(
            run.growth, run.calls - 1, census, self.situation.home, has_backward=False, old_before=run.growth.mark
        )
        if run.growth.is_confirmed() and is_suspicious(run.growth, self.situation):
            run.findings += search(run.growth, graphs, census, self.situation, is_evaluation=True)

    def _shown_by(self, run: _Run) -> list[Finding]:
        return [*run.findings, *self._with_graph(run)]

    def _with_graph(self, run: _Run) -> list[Finding]:
        model = run.model()
        least = _LEAST_CALLS_IN_TRAINING_MODE if run.is_in_training_mode else _LEAST_CALLS
        if run.calls_with_graph < least or model is None or model in self._trained:
            return []
        is_on_card = self.situation.is_on_card()
        size = run.graph_bytes if is_on_card and run.graph_bytes > 0 else None
        much = f": {format_bytes(size)} of the card's memory at each call" if size else ""
        mode = "" if run.is_in_training_mode else " in evaluation mode"
        return [
            Finding(
                code="DF201",
                claim=f"{type(model).__name__} was called {run.calls_with_graph} times in a row{mode} with gradients "
                f"on, and no backward pass went through what it gave{much}. Each call keeps what such a pass "
                f"would need.",
                advice="Put the evaluation under torch.inference_mode() or torch.no_grad(): model.eval() does not turn "
                "gradients off.",
                place=run.place,
                evidence=Evidence(
                    memory=DEVICE if is_on_card else HOST, size_bytes=size, numbers={"calls": run.calls_with_graph}
                ),
            )
        ]


def _tensors_in(output: Any, depth: int = 0) -> Iterator[Any]:
    if isinstance(output, torch.Tensor):
        yield output
    elif depth < 3:
        parts: Any = ()
        if isinstance(output, dict):
            parts = list(dict.values(output))
        elif isinstance(output, (list, tuple)):
            parts = list(output[:64])
        elif hasattr(output, "__dataclass_fields__"):
            parts = list(vars(output).values())
        for part in parts:
            yield from _tensors_in(part, depth + 1)


def _is_trained(module: Any) -> bool:
    """Whether there is a parameter to train: otherwise the graph is for the input's sake, and meant."""
    return any(each.requires_grad for each in module.parameters())

"""An evaluation that builds a graph (DF201), keeps losses with theirs (DF101), or gathers outputs on the card (DF202).

A run of calls of one model, without a backward pass between them, is an evaluation if the model is in evaluation mode.
Where a backward pass follows such calls directly, the program trains in that mode, and they are none.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from dryfit.findings import Evidence, Finding, Place
from dryfit.findings.finding import DEVICE, HOST
from dryfit.units import format_bytes
from dryfit.watching.census import take_census
from dryfit.watching.device_memory import allocated_bytes
from dryfit.watching.frames import program_place
from dryfit.watching.growth import Growth
from dryfit.watching.kinds.kept import look
from dryfit.watching.kinds.kind import Kind
from dryfit.watching.situation import Situation
from dryfit.watching.torch_private import next_sequence_number

_LEAST_CALLS = 4
_LOOKED_AT_CALLS = 6  # the intervals that confirm a growth, and those at both ends
_LOOKED_AT_RUNS = 4


class Evaluation(Kind):
    """Follows the calls of a model that no backward pass comes between."""

    def __init__(self, situation: Situation) -> None:
        super().__init__(situation)
        self._model: weakref.ref[Any] | None = None
        self._is_evaluated = False
        self._calls = self._calls_with_graph = self._runs = 0
        self._growth: Growth | None = None
        self._mark_before = 0
        self._place: Place | None = None
        self._graph_bytes: list[int] = []
        self._allocated_before = 0
        self._held_back: list[Finding] = []
        self._trained: weakref.WeakSet[Any] = weakref.WeakSet()  # in evaluation mode, by those who mean to

    def model_called(self, module: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        model = self._model() if self._model is not None else None
        if model is not None and module is not model and self._calls and self._is_evaluated == (not module.training):
            return  # a second model in the same loop: the first one counts
        if module is not model or self._is_evaluated != (not module.training):
            self._end_run()
            self._begin_run(module)
        self._calls += 1
        if self._calls > 1 and self._calls <= _LOOKED_AT_CALLS and self._runs <= _LOOKED_AT_RUNS:
            self._look()
        if torch.is_grad_enabled() and self._calls <= _LEAST_CALLS:
            self._place = program_place()
            self._allocated_before = allocated_bytes()

    def model_returned(self, module: Any, output: Any) -> None:
        if self._model is None or self._model() is not module or not torch.is_grad_enabled():
            return
        if any(each.requires_grad for each in _tensors_in(output)) and _is_trained(module):
            self._calls_with_graph += 1
            if self._calls <= _LEAST_CALLS:
                self._graph_bytes.append(allocated_bytes() - self._allocated_before)

    def backward_begins(self) -> None:
        model = self._model() if self._model is not None else None
        if model is not None and self._is_evaluated and self._calls:
            self._trained.add(model)
        self._forget_run()

    def step_is_over(self, step: int, census: Any) -> None:
        self._settle()

    def pending(self) -> list[Finding]:
        return [*self._held_back, *self._with_graph()]

    def _begin_run(self, module: Any) -> None:
        self._model = weakref.ref(module)
        self._is_evaluated = not module.training
        self._runs += 1
        self._mark_before = next_sequence_number()
        self._growth = Growth(self._mark_before)

    def _end_run(self) -> None:
        self._settle()
        self._forget_run()

    def _forget_run(self) -> None:
        self._model, self._growth = None, None
        self._calls = self._calls_with_graph = 0
        self._graph_bytes = []
        self._held_back = []

    def _settle(self) -> None:
        """Tell what a run of evaluation has shown, now that no backward pass came."""
        if self._is_evaluated:
            self.found += self.pending()
            self._held_back = []
            self._calls_with_graph = 0

    def _look(self) -> None:
        """Compare what lives with what did before the last batch."""
        model = self._model() if self._model is not None else None
        if self._growth is None or model is None or model in self._trained:
            return
        mark = next_sequence_number()
        findings, _ = look(
            self._growth,
            self._calls - 1,
            take_census(),
            self.situation,
            has_backward=False,
            old_before=self._mark_before,
            is_evaluation=True,
        )
        self._mark_before = mark
        self._held_back += findings

    def _with_graph(self) -> list[Finding]:
        model = self._model() if self._model is not None else None
        if self._calls_with_graph < _LEAST_CALLS or not self._is_evaluated or model is None or model in self._trained:
            return []
        # The first calls come before what they let go of: the last ones of those measured are the most alike.
        size = max(self._graph_bytes, default=0)
        is_on_card = self.situation.is_on_card()
        much = f": {format_bytes(size)} of the card's memory at each call" if is_on_card and size > 0 else ""
        return [
            Finding(
                code="DF201",
                claim=f"{type(model).__name__} was called {self._calls_with_graph} times in a row in evaluation mode with "
                f"gradients on, and no backward pass followed{much}. Each call keeps what a backward pass would need.",
                advice="Put the evaluation under torch.inference_mode() or torch.no_grad(): model.eval() does not turn "
                "gradients off.",
                place=self._place,
                evidence=Evidence(
                    memory=DEVICE if is_on_card else HOST,
                    size_bytes=size if is_on_card else None,
                    numbers={"calls": self._calls_with_graph},
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

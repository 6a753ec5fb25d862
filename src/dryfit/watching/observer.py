"""Told of what a program does, comes to findings: leaks with their holder and line, evaluations with a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dryfit.findings import Finding


class Observer:
    """What is seen of one process's training; whoever hooks torch tells it of what happens.

        observer = Observer()
        observer.model_called(model, args, kwargs)      # and so on, as it happens
        observer.step_is_over(1)
        observer.findings()

    It has to be told on the thread, and below the frames, of the program's own call: it looks at their variables. It
    keeps no tensor alive and raises nothing; after an error of its own it is quiet, and `failure` has the traceback.

    `may_take_census(step)` says whether an expensive look (about 0.3 s for each million Python objects) may be taken
    after a step; without it one is taken after each. `tell` is called with each finding once, as it is met.
    """

    def __init__(
        self,
        *,
        may_take_census: Callable[[int], bool] | None = None,
        tell: Callable[[Finding], None] | None = None,
    ) -> None:
        self.failure = ""

    def model_called(self, module: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """A module is about to be called that no other module calls; before its forward pass."""

    def model_returned(self, module: Any, output: Any) -> None:
        """That call has given its output."""

    def backward_begins(self, tensors: Any, retain_graph: bool | None, create_graph: bool) -> None:
        """Autograd's engine is about to run, for `backward` or `grad`; the arguments are the engine's own."""

    def backward_is_over(self) -> None:
        """The engine has run, or failed; of passes within passes the outermost."""

    def optimizer_made(self, optimizer: Any) -> None:
        """An optimizer has been made."""

    def optimizer_begins(self, optimizer: Any) -> None:
        """An optimizer's step is about to run."""

    def optimizer_ended(self, optimizer: Any) -> None:
        """It has run."""

    def step_is_over(self, step: int) -> None:
        """A training step is over, counted from 1; at the same point of each: best where the next forward begins."""

    def needs_more_steps(self) -> bool:
        """Whether something grows that a few more steps would confirm: a rehearsal then goes on."""
        return False

    def findings(self) -> tuple[Finding, ...]:
        """What has been found so far, each kind and holder once; also at the program's end, without waiting for more."""
        return ()

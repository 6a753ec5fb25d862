"""Hands what the hooks see to an observer, where one is wanted, and keeps its errors from the program.

The observer is `watching`'s own, the same as in a live run. What it does not say is what the rehearsal does not know:
its figures do not depend on it.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dryfit.rehearse.inside import torch_private

if TYPE_CHECKING:
    from dryfit.watching.observer import Observer


class Observing:
    """What an observer of this process is told, or nothing; `failure` is the traceback of an error of its own."""

    def __init__(self) -> None:
        self._observer: Observer | None = None
        self._failure = ""

    @property
    def failure(self) -> str:
        return self._failure or (self._observer.failure if self._observer is not None else "")

    def begin_anew(self, *, is_wanted: bool) -> None:
        """Forget what was seen, as in a forked child, and look on if that is wanted."""
        self._observer, self._failure = None, ""
        if is_wanted:
            self._guarded(self._begin)

    def model_called(self, module: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        if self._observer is not None:
            self._guarded(self._observer.model_called, module, args, kwargs)

    def model_returned(self, module: Any, output: Any) -> None:
        if self._observer is not None:
            self._guarded(self._observer.model_returned, module, output)

    def backward_begins(self, arguments: Sequence[Any]) -> None:
        """The engine is about to run; the arguments are those of the function that starts it."""
        observer = self._observer
        if observer is not None:
            self._guarded(lambda: observer.backward_begins(*torch_private.wanted_of_engine(arguments)))

    def backward_is_over(self) -> None:
        if self._observer is not None:
            self._guarded(self._observer.backward_is_over)

    def optimizer_made(self, optimizer: Any) -> None:
        if self._observer is not None:
            self._guarded(self._observer.optimizer_made, optimizer)

    def optimizer_begins(self, optimizer: Any) -> None:
        if self._observer is not None:
            self._guarded(self._observer.optimizer_begins, optimizer)

    def optimizer_ended(self, optimizer: Any) -> None:
        if self._observer is not None:
            self._guarded(self._observer.optimizer_ended, optimizer)

    def step_is_over(self, step: int) -> None:
        if self._observer is not None:
            self._guarded(self._observer.step_is_over, step)

    def needs_more_steps(self) -> bool:
        """Whether something grows that a few more steps would confirm."""
        return self._observer is not None and self._guarded(self._observer.needs_more_steps) is True

    def findings(self) -> list[dict[str, Any]]:
        """What was found, as plain values."""
        found = self._guarded(self._observer.findings) if self._observer is not None else None
        return [finding.to_dict() for finding in found or ()]

    def _begin(self) -> None:
        from dryfit.watching.observer import Observer

        self._observer = Observer()

    def _guarded(self, call: Callable[..., Any], *args: Any) -> Any:
        try:
            with torch_private.without_torch_function():  # the program's modes and subclasses have no say in it
                return call(*args)
        except Exception:
            self._failure, self._observer = traceback.format_exc(), None
            return None

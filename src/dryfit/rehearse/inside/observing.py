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
    from dryfit.watching.signs import Signs


# A few looks tell whether what a sign was of is growth.
_MOST_WAITED = 5


def _always(step: int) -> bool:
    return True


class Observing:
    """What an observer of this process is told, or nothing; `failure` is the traceback of an error of its own."""

    def __init__(self) -> None:
        self._observer: Observer | None = None
        self._signs: Signs | None = None
        self._failure, self._waited = "", 0

    @property
    def failure(self) -> str:
        return self._failure or (self._observer.failure if self._observer is not None else "")

    def begin_anew(self, *, is_wanted: bool, looks_closely: bool = False) -> None:
        """Forget what was seen, as in a forked child, and look on if that is wanted: after each step, or for signs."""
        self._observer, self._signs, self._failure, self._waited = None, None, "", 0
        if is_wanted:
            self._guarded(self._begin, looks_closely)

    def model_called(self, module: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        if self._observer is not None:
            self._guarded(self._observer.model_called, module, args, kwargs)

    def model_returned(self, module: Any, output: Any) -> None:
        if self._observer is not None:
            if self._signs is not None:
                self._guarded(self._signs.graph_of, output)
            self._guarded(self._observer.model_returned, module, output)

    def backward_begins(self, arguments: Sequence[Any]) -> None:
        """The engine is about to run; the arguments are those of the function that starts it."""
        observer = self._observer
        if observer is not None:
            if self._signs is not None:
                self._guarded(self._signs.graph_of, arguments[0])
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
            if self._signs is not None:
                self._guarded(self._signs.step_is_over)
            self._guarded(self._observer.step_is_over, step)

    def needs_more_steps(self) -> bool:
        """Whether something grows that a few more steps would confirm."""
        if self._observer is None:
            return False
        wants_more = self._guarded(self._observer.needs_more_steps) is True
        if self._signs is not None and self._signs.something_stays:
            self._waited += 1
            wants_more |= self._waited <= _MOST_WAITED
        return wants_more

    def findings(self) -> list[dict[str, Any]]:
        """What was found, as plain values."""
        found = self._guarded(self._observer.findings) if self._observer is not None else None
        return [finding.to_dict() for finding in found or ()]

    def _begin(self, looks_closely: bool) -> None:
        from dryfit.watching.observer import Observer
        from dryfit.watching.signs import Signs

        signs = Signs()
        self._signs = None if looks_closely else signs
        self._observer = Observer(may_take_census=_always if looks_closely else signs.may_take_census)

    def _guarded(self, call: Callable[..., Any], *args: Any) -> Any:
        try:
            with torch_private.without_torch_function():  # the program's modes and subclasses have no say in it
                return call(*args)
        except Exception:
            self._failure, self._observer = traceback.format_exc(), None
            return None

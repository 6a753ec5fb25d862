"""What a kind of finding is told, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dryfit.findings import Finding
from dryfit.watching.census import Census
from dryfit.watching.situation import Situation


class Kind:
    """Told of what happens, after the situation; a kind overrides what it needs."""

    def __init__(self, situation: Situation) -> None:
        self.situation = situation
        self.found: list[Finding] = []

    def model_called(self, module: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """A model is about to be called."""

    def model_returned(self, module: Any, output: Any) -> None:
        """It has given its output."""

    def backward_begins(self, tensors: Any) -> None:
        """Autograd's engine is about to run."""

    def backward_is_over(self) -> None:
        """The engine has run."""

    def optimizer_made(self, optimizer: Any) -> None:
        """An optimizer has been made."""

    def optimizer_begins(self, optimizer: Any) -> None:
        """An optimizer is about to step."""

    def optimizer_ended(self, optimizer: Any) -> None:
        """It has stepped."""

    def step_is_over(self, step: int, census: Census | None) -> None:
        """A training step is over; there is a census after some."""

    def wants_census(self, step: int) -> bool:
        """Whether to take one after this step, in a rehearsal, though there is no other reason to."""
        return False

    def needs_census(self, step: int) -> bool:
        """Whether something is to be told after this step that only one can make certain, in a live run too."""
        return False

    def needs_more_steps(self) -> bool:
        """Whether some more steps would confirm something."""
        return False

    def pending(self) -> list[Finding]:
        """What is to be told if the program ends now, and not otherwise."""
        return []

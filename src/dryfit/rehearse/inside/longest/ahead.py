"""Batches that are drawn from a program's own iterator before their turn, measured, and given in their order."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from dryfit.rehearse.inside.longest.looking import MOST_SECONDS, random_state_kept
from dryfit.rehearse.inside.longest.sizes import Shapes, elements_of, is_on_card, shapes_of

# Of host memory, in elements of eight bytes at most: a gibibyte.
_MOST_ELEMENTS = 1 << 27


class Ahead:
    """The next batches of one iterator; `shapes` are of those drawn at once."""

    def __init__(self) -> None:
        self._batches: deque[Any] = deque()
        self._error: Exception | None = None
        self.shapes: list[Shapes] = []
        self.is_on_card = False

    def draw(self, next_batch: Callable[[], Any], most: int) -> list[Any]:
        """Draw that many, fewer where the iterator ends, fails, takes long or gives much; all that were drawn.

        Of batches that are on the card only one is drawn, for they would take its memory. An error that the iterator
        raises is kept for its turn.
        """
        began, elements = time.monotonic(), 0
        with random_state_kept():
            while len(self._batches) < most and time.monotonic() - began < MOST_SECONDS and elements < _MOST_ELEMENTS:
                try:
                    batch = next_batch()
                except Exception as error:
                    self._error = error
                    break
                self._batches.append(batch)
                self.is_on_card = is_on_card(batch)
                if self.is_on_card:
                    break
                self.shapes.append(shapes_of(batch))
                elements += elements_of(self.shapes[-1])
        return list(self._batches)

    def next(self, next_batch: Callable[[], Any]) -> Any:
        """The batch whose turn it is: drawn before, or now."""
        if self._batches:
            return self._batches.popleft()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return next_batch()

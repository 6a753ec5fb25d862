"""A loader on its way through one epoch: micro-batches are read, and counted, before their window begins."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from dryfit.errors import UsageError
from dryfit.train.normalising import count_items
from dryfit.train.warning_classes import AccumulationWarning

Batch = TypeVar("Batch")

# A loader that gives this many micro-batches without items in a row will not give another kind, or `items` is wrong.
_EMPTY_IN_A_ROW = 1000


class Reading(Generic[Batch]):
    """One epoch's reading; `read` is how many micro-batches it has taken from the loader."""

    def __init__(self, loader: Iterable[Batch], items: Callable[[Batch], Any] | None) -> None:
        self.read = 0
        self._source = iter(loader)
        self._items = items
        self._empty = self._empty_in_a_row = 0

    def fill(self, waiting: deque[tuple[Batch, float]], steps: int) -> None:
        """Read until `steps` micro-batches wait, each with its items, or the loader has no more.

        Raises:
            UsageError: items are no count, or there are none in the whole loader or far into it.
        """
        while len(waiting) < steps:
            try:
                batch = next(self._source)
            except StopIteration:
                break
            count = 1.0
            if self._items is not None:
                count = count_items(self._items, batch, f"micro-batch {self.read} of the loader")
            self.read += 1
            if count:
                waiting.append((batch, count))
                self._empty_in_a_row = 0
            else:
                self._pass_over()
        if self._empty and self._empty == self.read:
            raise UsageError(
                f"items(batch) was 0 for all {self.read} micro-batches of the loader, so there is nothing to train on. "
                f"Look at how items are counted, and at the labels."
            )

    def _pass_over(self) -> None:
        self._empty += 1
        self._empty_in_a_row += 1
        if self._empty_in_a_row == _EMPTY_IN_A_ROW:
            raise UsageError(
                f"items(batch) was 0 for {_EMPTY_IN_A_ROW} micro-batches in a row, up to number {self.read - 1}. "
                f"Look at how items are counted, and at the labels."
            )
        if self._empty == 1:
            warnings.warn(
                f"Micro-batch {self.read - 1} of the loader has no items, so the mean of its losses is 0/0. It is "
                f"passed over, and so are others like it.",
                AccumulationWarning,
                stacklevel=5,
            )

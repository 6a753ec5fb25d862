"""Whether the batches of a loader differ in shape, seen as they go by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dryfit.rehearse.inside.longest.sizes import Shapes, elements_of


def differ(loader: Any, batches: Iterable[Shapes]) -> bool:
    """Whether batches of a loader differ in shape."""
    seen = Differing(loader)
    for shapes in batches:
        seen.note(shapes)
    return bool(seen.to_dict())


class Differing:
    """The batches of one loader by size; a last batch of fewer samples does not count as another shape."""

    def __init__(self, loader: Any) -> None:
        self._dataset = loader.dataset
        size = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)
        self._batch_size = size if isinstance(size, int) else 0
        self._least: Shapes = {}
        self._most: Shapes = {}
        self._differ = False
        self._batches = 0

    def note(self, shapes: Shapes) -> None:
        """A batch has gone by."""
        self._batches += 1
        if not self._most:
            self._least = self._most = shapes
        self._differ = self._differ or self._without_batch(shapes) != self._without_batch(self._most)
        self._least = min(self._least, shapes, key=elements_of)
        self._most = max(self._most, shapes, key=elements_of)

    def to_dict(self) -> dict[str, Any]:
        """The smallest and the largest as plain values; nothing where all are alike."""
        if not self._differ:
            return {}
        return {
            "dataset": type(self._dataset).__name__,
            "batches": self._batches,
            "least": {name: list(shape) for name, shape in self._least.items()},
            "most": {name: list(shape) for name, shape in self._most.items()},
        }

    def _without_batch(self, shapes: Shapes) -> Shapes:
        return {name: shape[1:] if shape and shape[0] <= self._batch_size else shape for name, shape in shapes.items()}

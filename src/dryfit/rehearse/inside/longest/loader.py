"""What is known of one loader: the longest batch it can give, where it was given, and how its own batches differ."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from typing import Any

from dryfit.recording.model import EVALUATION
from dryfit.rehearse.inside import torch_private
from dryfit.rehearse.inside.longest import order
from dryfit.rehearse.inside.longest.ahead import Ahead
from dryfit.rehearse.inside.longest.asked import BATCHES, SAMPLES, USUAL_BATCHES, Asked
from dryfit.rehearse.inside.longest.choosing import (
    largest_of,
    longest_batch,
    longest_dimension,
    percentile_of,
    varying,
)
from dryfit.rehearse.inside.longest.differing import differ
from dryfit.rehearse.inside.longest.looking import choice_of, random_state_kept, samples_of, sizes_of
from dryfit.rehearse.inside.longest.sizes import Shapes, elements_of, shapes_of, tensors_in

# Where the samples are all alike: as many batches as a rehearsal has steps.
_BATCHES_OF_ALIKE = 20
# Batches of the program's own whose shapes are kept, to tell them from the longest.
_MOST_REMEMBERED = 1000


class LoaderSeen:
    """One loader's longest batch, found when its first batch is asked for, and given in its place from then on.

    The data set is kept, so that another one cannot come to its identity.
    """

    def __init__(self, loader: Any, asked: Asked, *, at_once: bool) -> None:
        self._dataset, self._asked, self._at_once = loader.dataset, asked, at_once
        self._place = 0
        self._make: Callable[[Any], Any] | None = None  # the longest batch, made anew
        self._most_elements = 0
        self.steps: set[int] = set()
        self.given: Shapes = {}
        self._tensors: frozenset[tuple[int, ...]] = frozenset()
        self._own: list[tuple[int, frozenset[tuple[int, ...]]]] = []
        self.facts: dict[str, Any] = {
            "dataset": type(loader.dataset).__name__, "of": SAMPLES, "measured": "", "lengths": [], "looked_at": 0,
            "there_are": None, "unreadable": 0, "failure": "", "changes": False, "evaluates": False, "seconds": 0.0,
            "times": 0, "not_made": "",
        }  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, for the `end` event."""
        return {
            **self.facts,
            "percentile": self._asked.percentile,
            "given": {name: list(shape) for name, shape in self.given.items()},
            "steps": sorted(self.steps),
        }

    def look(self, loader: Any, ahead: Ahead, next_batch: Callable[[], Any]) -> None:
        """Find the longest batch: of the samples if that is asked for and can be, else of the next batches."""
        began = time.monotonic()
        alike = False
        if not self._asked.batches:
            with random_state_kept():
                alike = self._look_at_samples(loader)
        if self._make is None:
            usual = _BATCHES_OF_ALIKE if alike else USUAL_BATCHES
            batches = ahead.draw(next_batch, self._asked.batches or usual)
            if ahead.is_on_card:
                self.facts["not_made"] = "its batches are on the card already, where keeping one would take memory"
            else:
                self._look_at_batches(loader, batches, ahead.shapes, alike=alike)
        self.facts["seconds"] = round(time.monotonic() - began, 3)

    def next(self, loader: Any, own: Any) -> Any:
        """The batch for this place, where the program's own is `own`."""
        place, self._place = self._place, self._place + 1
        if self._make is None:
            return own
        limit = self._most_elements
        is_longest = order.is_for_longest(place, at_once=self._at_once)
        if not is_longest:
            elements = elements_of(shapes_of(own))
            if not limit or elements <= limit:
                if len(self._own) < _MOST_REMEMBERED:
                    self._own.append((elements, tensors_in(own)))
                return own
        try:
            with random_state_kept():
                batch = self._make(own)
                if loader.pin_memory:
                    batch = torch_private.pinned(batch)
            self.given, self._tensors = shapes_of(batch), tensors_in(batch)
        except Exception as error:
            self._give_up(error)
            return own
        self.facts["times"] += 1
        return batch

    def model_called(self, step: int, phase: str, tensors: frozenset[tuple[int, ...]]) -> None:
        """A model is called with these: with the longest batch, if one is of a shape that no smaller batch has."""
        if step in self.steps or not self.given:
            return
        elements = elements_of(self.given)
        of_smaller = (shapes for size, shapes in self._own if size < elements)
        if tensors & self._tensors.difference(*of_smaller):
            self.steps.add(step)
            self.facts["evaluates"] = phase == EVALUATION

    def _look_at_samples(self, loader: Any) -> bool:
        """Find it among the samples, if they differ; whether they have sizes, and are alike."""
        choice = choice_of(loader)
        if choice is None:
            return False
        sizes = sizes_of(loader.dataset, choice.indices)
        self.facts |= {
            "looked_at": len(sizes.by_index),
            "there_are": len(choice.indices) if choice.is_whole else None,
            "unreadable": sizes.unreadable,
            "failure": sizes.failure,
        }
        if not any(sizes.by_index.values()):
            return False
        if not self._measure(list(sizes.by_index.values())):
            return True
        indices: Sequence[Any]
        if choice.batches:
            indices = largest_of(choice.batches, sizes.by_index)
        else:
            indices = longest_batch(sizes.by_index, choice.batch_size)
            lacking = min(choice.batch_size, len(choice.indices)) - len(indices)
            indices = [*indices, *indices[:1] * lacking]

        def make(_: Any) -> Any:
            if loader.batch_sampler is None:
                return loader.collate_fn(loader.dataset[indices[0]])
            samples = samples_of(loader.dataset, indices)
            again = (
                shapes_of(sample) != sizes.by_index.get(index) for sample, index in zip(samples, indices, strict=True)
            )
            self.facts["changes"] = self.facts["changes"] or any(again)
            return loader.collate_fn(samples)

        self._make = make
        return False

    def _look_at_batches(self, loader: Any, batches: list[Any], shapes: list[Shapes], *, alike: bool) -> None:
        if not alike:
            self.facts |= {"of": BATCHES, "looked_at": len(batches), "there_are": None}
        if not differ(loader, shapes) or not self._measure(shapes):
            return
        self.facts |= {"of": BATCHES, "looked_at": len(batches), "there_are": None}
        elements = [elements_of(each) for each in shapes]
        chosen = percentile_of(elements, self._asked.percentile)
        if self._asked.percentile < 100:
            self._most_elements = elements[chosen]
        try:
            kept = copy.deepcopy(batches[chosen])  # as it is: the program may change its own
        except Exception as error:
            self._give_up(error)
        else:
            self._make = lambda _: copy.deepcopy(kept)

    def _give_up(self, error: Exception) -> None:
        self._make = None
        self.facts["not_made"] = f"{type(error).__name__}: {error}"

    def _measure(self, shapes: list[Shapes]) -> bool:
        """Note the lengths; whether there are several."""
        dimensions = varying(shapes)
        if not dimensions:
            return False
        name, axis = longest_dimension(dimensions)
        lengths = dimensions[name, axis]
        places = [percentile_of(lengths, each) for each in (50, 99)]
        self.facts["measured"] = name if all(len(each.get(name, ())) < 2 for each in shapes) else f"{name}[{axis}]"
        self.facts["lengths"] = [min(lengths), *(lengths[place] for place in places), max(lengths)]
        return True

"""The hook on `DataLoader`: at some places the longest batch is given in place of the program's own.

The program's own is fetched all the same and put aside, so that its sampler, its workers and its count of batches go on
as ever. Where nothing is asked for, what the batches' shapes are is all that is noted.
"""

from __future__ import annotations

import functools
import traceback
import weakref
from collections.abc import Callable
from typing import Any

from dryfit.rehearse.inside import torch_private
from dryfit.rehearse.inside.identities import Identities
from dryfit.rehearse.inside.longest import order
from dryfit.rehearse.inside.longest.ahead import Ahead
from dryfit.rehearse.inside.longest.asked import Asked, asked_of
from dryfit.rehearse.inside.longest.differing import Differing
from dryfit.rehearse.inside.longest.loader import LoaderSeen
from dryfit.rehearse.inside.longest.sizes import shapes_of, tensors_in


class Longest:
    """What a process's loaders give. `failure` is the traceback of an error of ours, and then they give their own."""

    def __init__(self) -> None:
        self._iterated: Identities[tuple[Callable[[], Any], Ahead]] = Identities()
        self.begin_anew("", None)

    def begin_anew(self, longest: str, steps: int | None) -> None:
        """Forget what was seen, as in a forked child, and do from now on what `Orders.longest` says."""
        self._asked: Asked | None = asked_of(longest) if longest else None
        self._steps, self.failure = steps, ""
        self._loaders: dict[tuple[Any, ...], LoaderSeen] = {}
        self._differing: dict[tuple[Any, ...], Differing] = {}

    @property
    def period(self) -> int:
        """After how many steps the order in which the longest is given repeats itself; 1 where it is not given."""
        return order.PERIOD if any(each.given for each in self._loaders.values()) else 1

    def watch(self, dataloader: Any) -> None:
        """Follow the loaders made of `torch.utils.data.dataloader`, the module."""
        real_iter = dataloader.DataLoader.__iter__

        @functools.wraps(real_iter)
        def __iter__(loader: Any) -> Any:
            iterator = real_iter(loader)
            # A loader that keeps its workers keeps its iterator, which without us would go with it.
            of = weakref.ref(loader) if loader.persistent_workers else lambda: loader
            self._iterated.put(iterator, (of, Ahead()))
            return iterator

        def giving(real: Callable[[Any], Any]) -> Callable[[Any], Any]:
            @functools.wraps(real)
            def __next__(iterator: Any) -> Any:
                found = self._iterated.get(iterator)
                if found is None:
                    return real(iterator)
                loader, ahead = found[0](), found[1]
                if self.failure or loader is None:
                    return ahead.next(lambda: real(iterator))
                return self._next(loader, ahead, lambda: real(iterator))

            return __next__

        dataloader.DataLoader.__iter__ = __iter__
        torch_private.wrap_next_batch(dataloader, giving)

    def model_called(self, step: int, phase: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A model is called in a step and phase; whether with a longest batch is seen from the shapes."""
        if self.period > 1 and not self.failure:
            self._guarded(lambda: self._note_step(step, phase, args, kwargs))

    def facts(self) -> dict[str, Any]:
        """For the `end` event: `batches`, of each loader that was given the longest, and `differing`, of the others."""
        return {
            "asked": self._asked is not None,
            "batches": [each.to_dict() for each in self._loaders.values()],
            "differing": [found for each in self._differing.values() if (found := each.to_dict())],
            "not_given": self.failure,
        }

    def _next(self, loader: Any, ahead: Ahead, next_batch: Callable[[], Any]) -> Any:
        if self._asked is None:
            batch = next_batch()
            self._guarded(lambda: self._note_batch(loader, batch))
            return batch
        key = _key(loader)
        if key not in self._loaders:
            at_once = order.has_to_come_at_once(self._steps, _batches_in(loader))
            self._loaders[key] = LoaderSeen(loader, self._asked, at_once=at_once)
            self._guarded(lambda: self._loaders[key].look(loader, ahead, next_batch))
        own = ahead.next(next_batch)
        given = self._guarded(lambda: (self._loaders[key].next(loader, own),))
        return own if given is None else given[0]

    def _note_batch(self, loader: Any, batch: Any) -> None:
        with torch_private.without_torch_function():
            self._differing.setdefault(_key(loader), Differing(loader)).note(shapes_of(batch))

    def _note_step(self, step: int, phase: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        with torch_private.without_torch_function():
            tensors = tensors_in((args, kwargs))
        for each in self._loaders.values():
            each.model_called(step, phase, tensors)

    def _guarded(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception:
            self.failure = traceback.format_exc()
            return None


def _key(loader: Any) -> tuple[Any, ...]:
    """The same for loaders of the same batches, as a trainer makes one of them anew for each epoch."""
    return id(loader.dataset), loader.batch_size, type(loader.sampler).__name__, type(loader.batch_sampler).__name__


def _batches_in(loader: Any) -> int | None:
    try:
        return len(loader)
    except Exception:
        return None

"""Batches on their way to the device, copied while the one before is worked on."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterable, Iterator, Sized
from typing import Any, Generic, TypeVar

import torch

from dryfit.errors import UsageError
from dryfit.train.nested import changed

Batch = TypeVar("Batch")


def to_device(loader: Iterable[Batch], device: torch.device | str | int, *, prefetch: int = 1) -> ToDevice[Batch]:
    """Go through a loader with each batch on the device, and the next `prefetch` of them copied meanwhile.

        for batch in to_device(loader, "cuda"):
            loss_of(model(batch)).backward()

    While your loop works on a batch, the device holds that one and `prefetch` more; between two batches, when your
    variable still has the old one, one more. Copies run on a stream of their own, from pinned memory: batches are
    pinned here unless the loader has done it (`pin_memory=True` does, in its own thread, which is better). On any
    device but a CUDA one, and with `prefetch=0`, a batch is moved when its turn comes.

    A batch is a tensor, or mappings, lists, tuples and dataclasses of tensors and other things; what has a `.to` of its
    own, such as a PackedSequence, is moved by that when its turn comes. The result has the loader's length, and may be
    gone through once per epoch.

    Raises:
        UsageError: `prefetch` is no number, or below zero.
    """
    if isinstance(prefetch, bool) or not isinstance(prefetch, int) or prefetch < 0:
        raise UsageError(f"prefetch={prefetch!r} is no number of batches; it has to be 0 or more.")
    place = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    return ToDevice(loader, place, prefetch)


class ToDevice(Generic[Batch]):
    """A loader whose batches come on a device; `to_device` makes it."""

    def __init__(self, loader: Iterable[Batch], device: torch.device, prefetch: int) -> None:
        self._loader, self._device, self._prefetch = loader, device, prefetch

    def __len__(self) -> int:
        if not isinstance(self._loader, Sized):
            raise TypeError(f"{type(self._loader).__name__} has no length, so neither has to_device of it.")
        return len(self._loader)

    def __iter__(self) -> Iterator[Batch]:
        if self._prefetch == 0 or self._device.type != "cuda":
            # map, and no loop: a loop's variable would keep a batch for longer than the caller does.
            return map(self._move, self._loader)
        return self._ahead()

    def _move(self, batch: Batch) -> Batch:
        def move(value: Any) -> Any:
            return value.to(self._device) if _moves_itself(value) else value

        moved: Batch = changed(batch, move, whole=_moves_itself)
        return moved

    def _ahead(self) -> Iterator[Batch]:
        # First, as its error says that there is no card, and a stream's does not.
        torch.cuda.init()  # type: ignore[no-untyped-call]
        copying = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        coming: deque[tuple[Batch, torch.cuda.Event]] = deque()
        for copied in map(functools.partial(self._copy, copying), self._loader):
            coming.append(copied)
            del copied
            if len(coming) > self._prefetch:
                yield self._arrived(*coming.popleft())
        while coming:
            yield self._arrived(*coming.popleft())

    def _copy(self, copying: torch.cuda.Stream, batch: Batch) -> tuple[Batch, torch.cuda.Event]:
        """Begin to copy what is on the host; the rest waits for its turn, as streams of its own may still write it."""

        def begin(value: Any) -> Any:
            if not _is_plain(value) or value.device.type != "cpu":
                return value
            pinned = value if value.is_pinned() else value.pin_memory()
            return pinned.to(copying.device, non_blocking=True)  # the pinned block is reused after the copy only

        with torch.cuda.stream(copying):
            return changed(batch, begin, whole=_moves_itself), copying.record_event()

    def _arrived(self, batch: Batch, copied: torch.cuda.Event) -> Batch:
        """Let the caller's stream wait for the copy, and the copy's memory for what that stream does."""
        working = torch.cuda.current_stream(self._device)
        working.wait_event(copied)

        def take(value: Any) -> Any:
            if _is_plain(value) and value.device == working.device:
                value.record_stream(working)
                return value
            return value.to(working.device) if _moves_itself(value) else value

        arrived: Batch = changed(batch, take, whole=_moves_itself)
        return arrived


def _is_plain(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout == torch.strided and not value.is_nested


def _moves_itself(value: Any) -> bool:
    return callable(getattr(value, "to", None))

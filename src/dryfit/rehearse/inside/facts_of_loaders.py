"""Which DataLoader the batches come from that a program trains on."""

from __future__ import annotations

import functools
from typing import Any

from dryfit.rehearse.inside import torch_private
from dryfit.rehearse.inside.identities import Identities

# Batch samplers of these are not the program's own, or hold one that may be.
_NOT_THE_PROGRAMS = ("torch.", "accelerate.", "lightning.", "pytorch_lightning.", "transformers.")


class Loaders:
    """`last` is of the loader that a batch was asked of last: its batch size, and whether it has a sampler of its own.

    The size is 0 without a loader, and where one has no batch size.
    """

    def __init__(self) -> None:
        self.last = (0, False)
        self._of_iterator: Identities[tuple[int, bool]] = Identities()

    def watch(self, dataloader: Any) -> None:
        """Follow the loaders made of `torch.utils.data.dataloader`, the module."""
        real = dataloader.DataLoader.__iter__

        @functools.wraps(real)
        def __iter__(loader: Any) -> Any:
            iterator = real(loader)
            self._of_iterator.put(iterator, (_batch_size(loader), _has_own_sampler(loader)))
            return iterator

        def noting(real: Any) -> Any:
            @functools.wraps(real)
            def __next__(iterator: Any) -> Any:
                self.last = self._of_iterator.get(iterator) or (0, False)
                return real(iterator)

            return __next__

        dataloader.DataLoader.__iter__ = __iter__
        torch_private.wrap_next_batch(dataloader, noting)


def _batch_size(loader: Any) -> int:
    size = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)
    return size if isinstance(size, int) else 0


def _has_own_sampler(loader: Any) -> bool:
    """Whether batches are put together by a sampler of the program's own, within what a trainer puts around it."""
    sampler = loader.batch_sampler
    while sampler is not None and type(sampler).__module__.startswith(_NOT_THE_PROGRAMS):
        sampler = getattr(sampler, "batch_sampler", None)
    return sampler is not None

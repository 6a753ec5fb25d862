"""The states of random number generators: read before something is computed, and written back to compute it again."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomStates:
    """The states of the CPU's generator, some cards', Python's `random`, and numpy's where it is loaded."""

    cpu: torch.Tensor
    cards: dict[int, torch.Tensor]
    python: Any
    numpy: Any

    def write(self) -> None:
        """Have every generator go on from here."""
        torch.set_rng_state(self.cpu)
        for device, state in self.cards.items():
            torch.cuda.set_rng_state(state, device)
        random.setstate(self.python)
        if self.numpy is not None:
            sys.modules["numpy"].random.set_state(self.numpy)

    @contextmanager
    def replayed(self) -> Iterator[None]:
        """Draw what was drawn from here on, and go on afterwards from where it was interrupted."""
        now = read_random_states(self.cards)
        self.write()
        try:
            yield
        finally:
            now.write()


def read_random_states(cards: Iterable[int]) -> RandomStates:
    """The states now; `cards` are the indices of CUDA devices."""
    numpy = sys.modules.get("numpy")
    return RandomStates(
        cpu=torch.get_rng_state(),
        cards={device: torch.cuda.get_rng_state(device) for device in cards},
        python=random.getstate(),
        numpy=None if numpy is None else numpy.random.get_state(),
    )

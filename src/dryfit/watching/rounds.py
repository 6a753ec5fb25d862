"""When the optimisers of a program have all stepped, so that its training step is over."""

from __future__ import annotations

import weakref
from typing import Any


class Rounds:
    """Which optimisers have stepped in the current round, of those that take part.

    Every optimiser that was made is expected to step once in a round; one that has not when another begins its second
    step takes no part (an optimiser kept for later, the generator of a GAN that is trained less often). So a GAN's
    two optimisers make one step together, and so do the hundreds of a backward pass that updates as it goes.
    """

    def __init__(self) -> None:
        self._taking_part: weakref.WeakSet[Any] = weakref.WeakSet()
        self._stepped: weakref.WeakSet[Any] = weakref.WeakSet()
        self._times: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._replaced: weakref.WeakKeyDictionary[Any, weakref.WeakSet[Any]] = weakref.WeakKeyDictionary()
        self.is_complete = False

    @property
    def all_have_stepped_twice(self) -> bool:
        """Whether every optimiser there is has made its states in one step, and held them through another."""
        return min(self._times.values(), default=2) >= 2

    def made(self, optimizer: Any) -> None:
        """An optimiser was made, and takes part from now on.

        It takes the place of one that has stepped and has some of its parameters: whoever makes one anew for each step
        may keep the old ones, and they step no more.
        """
        own = _parameters_of(optimizer)
        replaced = weakref.WeakSet(
            other for other, times in list(self._times.items()) if times and own & _parameters_of(other)
        )
        self._taking_part -= replaced
        self._taking_part.add(optimizer)
        self._replaced[optimizer] = replaced
        self._times[optimizer] = 0

    def begins_anew_with(self, optimizer: Any) -> bool:
        """Whether the round is over because this optimiser is about to step; those that have not take no part."""
        replaced = self._replaced.get(optimizer, weakref.WeakSet())
        if optimizer in self._stepped or self._stepped & replaced:
            self._taking_part = weakref.WeakSet(self._stepped - replaced)
            return True
        return self.is_complete

    def stepped(self, optimizer: Any) -> None:
        """An optimiser has stepped."""
        self._times[optimizer] = self._times.get(optimizer, 0) + 1
        self._taking_part.add(optimizer)
        self._stepped.add(optimizer)
        self.is_complete = self._taking_part <= self._stepped

    def begin(self) -> None:
        """Begin the next round."""
        self._stepped.clear()
        self.is_complete = False


def _parameters_of(optimizer: Any) -> set[int]:
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}

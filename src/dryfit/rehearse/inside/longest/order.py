"""At which places the longest batch is given, and the program's own at the others.

The own comes first: then the longest meets free blocks that shorter batches have cut up, as it would hours into a run.
Two of the longest follow, since the second meets the blocks of the first, and then one of the program's own again.
Any three batches in a row hold two of the longest, whatever a trainer fetches ahead or accumulates.
"""

from __future__ import annotations

PERIOD = 3
# A loader with fewer batches than these would end before its longest came.
_ENOUGH_BATCHES = 3


def is_for_longest(place: int, *, at_once: bool) -> bool:
    """Whether the longest is given at a place, counted from 0; with `at_once` it comes first.

    >>> ["longest" if is_for_longest(place, at_once=False) else "own" for place in range(5)]
    ['own', 'longest', 'longest', 'own', 'longest']
    """
    return (place + at_once) % PERIOD != 0


def has_to_come_at_once(steps: int | None, batches: int | None) -> bool:
    """Whether there is no time for one of the program's own before: one step was asked for, or few batches are there.

    >>> has_to_come_at_once(1, 1000), has_to_come_at_once(None, 2), has_to_come_at_once(None, None)
    (True, True, False)
    """
    return steps == 1 or (batches is not None and batches < _ENOUGH_BATCHES)

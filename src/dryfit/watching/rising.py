"""When sizes that go up from step to step are no accident of shapes. No torch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from dryfit.units import MIB

STEPS_IN_A_ROW = 10
LEAST_GROWTH_BYTES = 10 * MIB
"""So many steps in a row, each higher than the one before, and by so much in all, are no accident of shapes."""


def is_rising(sizes: Sequence[int], steps: int = STEPS_IN_A_ROW) -> bool:
    """Whether each of the last `steps` sizes is above the one before, and all together rise as ten steps have to.

    >>> is_rising([n << 30 for n in range(12)]), is_rising([7 << 30] * 12), is_rising([1 << 30, 2 << 30], steps=3)
    (True, False, False)
    """
    last = sizes[-steps:]
    least_bytes = LEAST_GROWTH_BYTES * (steps - 1) // (STEPS_IN_A_ROW - 1)
    return (
        len(last) == steps
        and last[-1] - last[0] >= least_bytes
        and all(early < late for early, late in itertools.pairwise(last))
    )

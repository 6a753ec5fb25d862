"""Whether this process is on a virtual card, where a tensor's values mean nothing."""

from __future__ import annotations

import os

from dryfit.virtual_card.settings import VARIABLE


def is_rehearsal() -> bool:
    """Whether numbers mean nothing, so that nothing can be told by comparing them.

    What is there to be compared is computed all the same, as its memory is part of the program's.
    """
    return VARIABLE in os.environ

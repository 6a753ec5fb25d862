"""The classes of what `dryfit.train` warns of, so that each can be silenced or made an error by itself."""

from __future__ import annotations


class AccumulationWarning(UserWarning):
    """A window of micro-batches does not do what one large batch would, or some data is left out."""


class BatchNormWarning(AccumulationWarning):
    """BatchNorm takes its statistics from each micro-batch, not from the whole window."""

"""Errors of predictions, and what is said of many of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .predictions import Prediction
from .rows import BRACKETS, DOES_NOT_FIT, Row

MISS = 0.05
"""A prediction is a miss if it is further off than this and the measured bytes lie outside its range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A row beside the prediction for it, made under one version of torch."""

    row: Row
    prediction: Prediction
    version: str

    @property
    def error(self) -> float:
        """How far the expected bytes are off, as a share of those measured."""
        return (self.prediction.expected_bytes - self.row.measured_bytes) / self.row.measured_bytes

    @property
    def is_inside(self) -> bool:
        """Whether the range holds what was measured, or what another measurement of the same may have found."""
        within_bytes = self.row.within_bytes
        low_bytes, high_bytes = self.prediction.low_bytes - within_bytes, self.prediction.high_bytes + within_bytes
        return low_bytes <= self.row.measured_bytes <= high_bytes

    @property
    def has_bytes(self) -> bool:
        return self.row.metric not in BRACKETS

    @property
    def fitted(self) -> bool:
        """Whether the program fitted on the card; one that was measured did."""
        return self.row.metric != DOES_NOT_FIT

    @property
    def fit(self) -> str:
        """ "right", "wrong" or "undecided": the verdict, against what happened on the card."""
        right, wrong = ("fits", "does not fit") if self.fitted else ("does not fit", "fits")
        return {right: "right", wrong: "wrong"}.get(self.prediction.verdict, "undecided")

    @property
    def is_miss(self) -> bool:
        """Whether misses.toml has to say why: bytes far off, or a wrong verdict."""
        return self.fit == "wrong" or (self.has_bytes and abs(self.error) > MISS and not self.is_inside)


def median(values: Sequence[float]) -> float:
    """The middle one, or halfway between the two in the middle.

    >>> median([3.0, 1.0, 2.0]), median([1.0, 2.0])
    (2.0, 1.5)
    """
    return percentile(values, 0.5)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of them does not pass, straight between the two nearest.

    >>> percentile([0.0, 1.0, 2.0, 3.0, 4.0], 0.9)
    3.6

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("There is no percentile of no values.")
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def peer_errors(compared: Sequence[Compared], peer: str) -> list[float]:
    """How far another program's figures are off, on the rows that it has one for."""
    return [
        abs(each.row.peers[peer] - each.row.measured_bytes) / each.row.measured_bytes
        for each in compared
        if peer in each.row.peers
    ]

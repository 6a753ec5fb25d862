"""The line through what was rehearsed: what is fixed, what each sample adds, and from where to where that holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from dryfit.search.trial import FITS, Trial
from dryfit.units import MIB

Point = tuple[int, int]

# A peak this near to the line lies on it: segments are rounded up to 2 MiB (20 MiB for the smaller ones), and blocks
# that are left over differ by as much.
_ON_THE_LINE_PART, _ON_THE_LINE_BYTES = 200, 24 * MIB
# ... and where all do within this part, scattered as such blocks are, one line says more than a piece of it.
_ALL_ON_THE_LINE_PART = 100
_LEAST_POINTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """`fixed_bytes + per_sample_bytes * value`: the least squares through `points` rehearsals, from `first` to `last`.

    None of them is farther from it than `largest_error_bytes`. `outside` lists the other values that fit, each with the
    bytes by which its peak is above the line.
    """

    fixed_bytes: int
    per_sample_bytes: int
    first: int
    last: int
    points: int
    largest_error_bytes: int
    outside: tuple[Point, ...] = ()

    def at(self, value: int) -> int:
        """What the line says of a value, in bytes.

        >>> line_through([(1, 110), (2, 120)]).at(4)
        140
        """
        return self.fixed_bytes + self.per_sample_bytes * value


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """How the peak grows with the value searched: of what nvidia-smi would show, of what PyTorch reserves, of tensors.

    Each is None where less than three, or less than half, of the rehearsals lie on a line. Reserved memory often bends
    where allocated does not: the allocator's segments and what is left over of them grow in their own way.
    """

    total: Line | None
    reserved: Line | None
    allocated: Line | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def law_of(trials: Sequence[Trial]) -> Law | None:
    """The law that the rehearsals which fit obey; None where they lie on no line at all."""
    fitting = sorted((trial for trial in trials if trial.kind == FITS), key=lambda trial: trial.value)
    total, reserved, allocated = (
        line_of([(trial.value, size_bytes(trial)) for trial in fitting])
        for size_bytes in (_total_bytes, _reserved_bytes, _allocated_bytes)
    )
    return Law(total=total, reserved=reserved, allocated=allocated) if total or reserved or allocated else None


def line_of(points: Sequence[Point]) -> Line | None:
    """The line through all points, if they lie near one; else through as many neighbouring ones as lie on one.

    Among as many, it is through those farthest apart.

    None where less than half of them lie on one: three of eight may by chance.

    >>> line_of([(1, 50 << 30), (2, 52 << 30), (4, 54 << 30), (8, 58 << 30)]).first
    2
    """
    if len(points) >= _LEAST_POINTS and _is_linear(points, _ALL_ON_THE_LINE_PART):
        return line_through(points)
    windows = [
        points[first:end]
        for first in range(len(points))
        for end in range(first + _LEAST_POINTS, len(points) + 1)
        if _is_linear(points[first:end], _ON_THE_LINE_PART)
    ]
    chosen = max(windows, key=lambda window: (len(window), window[-1][0] - window[0][0]), default=[])
    if 2 * len(chosen) < len(points) or not chosen:
        return None
    line = line_through(chosen)
    others = tuple((value, peak - line.at(value)) for value, peak in points if (value, peak) not in chosen)
    return dataclasses.replace(line, outside=others)


def line_through(points: Sequence[Point]) -> Line:
    """The least squares line through at least two points of different values, to the byte.

    >>> line = line_through([(1, 110), (2, 120), (4, 140)])
    >>> line.fixed_bytes, line.per_sample_bytes, line.largest_error_bytes
    (100, 10, 0)
    """
    count, sum_x, sum_y = len(points), sum(x for x, _ in points), sum(y for _, y in points)
    slope = Fraction(
        count * sum(x * y for x, y in points) - sum_x * sum_y, count * sum(x * x for x, _ in points) - sum_x**2
    )
    fixed = (sum_y - slope * sum_x) / count
    error = max(abs(y - fixed - slope * x) for x, y in points)
    return Line(
        fixed_bytes=round(fixed),
        per_sample_bytes=round(slope),
        first=min(points)[0],
        last=max(points)[0],
        points=count,
        largest_error_bytes=round(error),
    )


def crossing(first: Point, second: Point, limit: int) -> int | None:
    """The largest value at which the line through two points is not above a limit; None if it does not rise.

    >>> crossing((1, 110), (4, 140), 199), crossing((1, 110), (4, 110), 199)
    (9, None)
    """
    rise, run = second[1] - first[1], second[0] - first[0]
    return None if rise <= 0 or run <= 0 else first[0] + (limit - first[1]) * run // rise


def _total_bytes(trial: Trial) -> int:
    return trial.peak_total_bytes


def _reserved_bytes(trial: Trial) -> int:
    return trial.peak_reserved_bytes


def _allocated_bytes(trial: Trial) -> int:
    return trial.peak_allocated_bytes


def _is_linear(points: Sequence[Point], part: int) -> bool:
    """Whether all points lie on their line, and that rises: a peak that stays the same is no law of the samples."""
    line = line_through(points)
    allowed = max(_ON_THE_LINE_BYTES, max(peak for _, peak in points) // part)
    return line.largest_error_bytes <= allowed and line.per_sample_bytes > 0

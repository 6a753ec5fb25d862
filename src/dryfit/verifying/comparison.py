"""Two runs of one program, figure by figure. Values in, values out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

# What became of a run, in the words that a row keeps.
RAN, OUT_OF_MEMORY, FAILED, STOPPED = "ran", "out of memory", "failed", "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The peaks of one phase of one step, in bytes; step 0 is the setup.

    `total_bytes` is what nvidia-smi would show of the program; None where that was not to be had.
    """

    step: int
    phase: str
    allocated_bytes: int
    reserved_bytes: int
    total_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two runs: what became of it, and its figures in the order of time.

    `steps` are the optimiser steps it finished; `processes` those that used the card, of which `figures` are those of
    the one that took most; `seconds` is how long it ran in all.
    """

    outcome: str
    error_type: str | None
    steps: int
    processes: int
    seconds: float
    figures: tuple[Figures, ...]

    @property
    def peak_allocated_bytes(self) -> int:
        """The most that tensors held."""
        return max((each.allocated_bytes for each in self.figures), default=0)

    @property
    def peak_reserved_bytes(self) -> int:
        """The most that PyTorch held of the card."""
        return max((each.reserved_bytes for each in self.figures), default=0)

    @property
    def peak_total_bytes(self) -> int | None:
        """The most that nvidia-smi would have shown."""
        return max((each.total_bytes for each in self.figures if each.total_bytes is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One figure of both runs, in bytes; None where a run does not have it."""

    real_bytes: int | None
    virtual_bytes: int | None

    @property
    def off_bytes(self) -> int | None:
        """How much more the virtual card says."""
        if self.real_bytes is None or self.virtual_bytes is None:
            return None
        return self.virtual_bytes - self.real_bytes

    @property
    def off_share(self) -> float | None:
        """The same as a share of the real figure.

        >>> Pair(real_bytes=200, virtual_bytes=201).off_share
        0.005
        """
        return self.off_bytes / self.real_bytes if self.off_bytes is not None and self.real_bytes else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The three figures of one part of the runs, named as a person would: "step 2", "backward", "peak"."""

    name: str
    allocated: Pair
    reserved: Pair
    total: Pair


def peaks(real: Side, virtual: Side) -> Line:
    """The peaks of both runs."""
    return _line("peak", real.figures, virtual.figures)


def by_step(real: Side, virtual: Side) -> list[Line]:
    """The peaks of each step that either run has, the setup first."""
    return _lines(real, virtual, lambda each: f"step {each.step}" if each.step else "setup")


def by_phase(real: Side, virtual: Side) -> list[Line]:
    """The peaks of each phase over all steps, in the order in which they first came."""
    return _lines(real, virtual, lambda each: each.phase)


def alike_until(real: Side, virtual: Side) -> int:
    """In how many phases of steps, from the start, allocated and reserved memory are the same to the byte."""
    for count, (one, other) in enumerate(zip(real.figures, virtual.figures, strict=False)):
        if _exact(one) != _exact(other):
            return count
    return min(len(real.figures), len(virtual.figures))


def _exact(figures: Figures) -> tuple[int, str, int, int]:
    return figures.step, figures.phase, figures.allocated_bytes, figures.reserved_bytes


def _lines(real: Side, virtual: Side, name: Callable[[Figures], str]) -> list[Line]:
    names = dict.fromkeys(name(each) for each in (*real.figures, *virtual.figures))
    of_steps = sorted(names, key=lambda each: int(each[5:]) if each[:5] == "step " and each[5:].isdigit() else 0)
    return [
        _line(
            each,
            [figures for figures in real.figures if name(figures) == each],
            [figures for figures in virtual.figures if name(figures) == each],
        )
        for each in of_steps
    ]


def _line(name: str, real: Sequence[Figures], virtual: Sequence[Figures]) -> Line:
    return Line(
        name=name,
        allocated=_pair(real, virtual, lambda each: each.allocated_bytes),
        reserved=_pair(real, virtual, lambda each: each.reserved_bytes),
        total=_pair(real, virtual, lambda each: each.total_bytes),
    )


def _pair(real: Sequence[Figures], virtual: Sequence[Figures], figure: Callable[[Figures], int | None]) -> Pair:
    highest = [max((size for size in map(figure, side) if size is not None), default=None) for side in (real, virtual)]
    return Pair(real_bytes=highest[0], virtual_bytes=highest[1])

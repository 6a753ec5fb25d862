"""Values on the virtual card: what small operators compute is true, and what had to be invented is listed.

No kernel runs on the virtual card, but its memory is address space of this process. So an operator whose tensors are
all small and known runs once more on the CPU, over the same bytes, after its CUDA kernel has made the real
allocations. docs/values.md says what is known, and which answer is given to what is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dryfit.rehearse.assumptions import parse
from dryfit.rehearse.inside.values import front_end as _front_end
from dryfit.rehearse.inside.values.engine import Engine
from dryfit.rehearse.inside.values.inventions import Invention

__all__ = ["Invention", "Values", "install"]


class Values:
    """What became of the values of this process.

    Example:
        values = install(calls.answer, calls.forget)
        values.inventions()

    `front_end` is "kernel overrides" or "backend select".
    """

    def __init__(self, engine: Engine, front_end: str) -> None:
        self._engine = engine
        self.front_end = front_end

    @property
    def failures(self) -> dict[str, int]:
        """Operators the CPU refused to compute though their inputs were known, with how often: the most first.

        values.failures  # {"aten::_fancy.out": 3}

        What they gave is unknown, so later answers can be less true than they could be; memory is not touched. An
        operator is not tried again after three failures.
        """
        return dict(self._engine.failures.copy().most_common())

    def inventions(self) -> list[Invention]:
        """The invented values so far, those that decided a size first."""
        return self._engine.inventions.listed()

    @property
    def fates(self) -> dict[str, str]:
        """What became of each place of `--assume`, as `assumptions.notes` reads it."""
        return self._engine.assumed.fates


def install(answer: Callable[[int], None], forget: Callable[[], None], assume: Sequence[str] = ()) -> Values:
    """Follow the operators of this process from now on.

    Example:
        values = install(calls.answer, calls.forget)

    Call it once, after torch is imported and before the program uses the card. `answer(n)` must make `n` the next
    integer that CUDA code reads from the device, and `forget()` withdraw what was not read. `assume` is what the person
    said of values that are not known, as `assumptions.parse` reads it.
    """
    engine = Engine(answer, forget, parse(assume))
    return Values(engine, _front_end.install(engine))

"""Optimizers made anew (DF110), gradients cleared before the step (DF304), schedules moved per micro-batch (DF303)."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from dryfit.findings import Evidence, Finding, Place
from dryfit.findings.finding import DEVICE, HOST
from dryfit.units import format_bytes
from dryfit.watching import source_places
from dryfit.watching.census import Census
from dryfit.watching.frames import program_codes, program_place
from dryfit.watching.held import holders_of
from dryfit.watching.kinds.kind import Kind
from dryfit.watching.situation import Situation

_LEAST_LIVING = 3
_TIMES = 3


@dataclass(slots=True)
class _Made:
    optimizer: weakref.ref[Any]
    parameters: frozenset[int]
    place: Place | None
    steps: int = 0


class Optimizers(Kind):
    """Follows the optimizers there are, and what they find when they step."""

    def __init__(self, situation: Situation) -> None:
        super().__init__(situation)
        self._made: list[_Made] = []
        self._backwards_at_step = 0
        self._without_gradients: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._schedules: weakref.WeakKeyDictionary[Any, tuple[int, int, int]] = weakref.WeakKeyDictionary()
        self._too_fast: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._had_gradients = False
        self._made_one, self._next_look = False, _LEAST_LIVING

    def optimizer_made(self, optimizer: Any) -> None:
        self._made = [each for each in self._made if each.optimizer() is not None]
        self._made.append(_Made(weakref.ref(optimizer), frozenset(map(id, _parameters_of(optimizer))), program_place()))
        self._made_one = True

    def backward_is_over(self) -> None:
        self._had_gradients = True

    def optimizer_begins(self, optimizer: Any) -> None:
        """See whether a backward pass has been, and its gradients are gone already."""
        self._look_for_old_ones()
        has_some = any(parameter.grad is not None for parameter in _parameters_of(optimizer))
        if has_some or not self._had_gradients:
            self._without_gradients.pop(optimizer, None)
            return
        times = self._without_gradients.get(optimizer, 0) + 1
        self._without_gradients[optimizer] = times
        if times == _TIMES:
            self.found.append(_cleared_too_late(optimizer))

    def optimizer_ended(self, optimizer: Any) -> None:
        for each in self._made:
            if each.optimizer() is optimizer:
                each.steps += 1

    def step_is_over(self, step: int, census: Census | None) -> None:
        self._had_gradients = False
        if census is not None:
            self._look_at_schedules(census, step)

    def _look_for_old_ones(self) -> None:
        """Optimizers that have stepped, for parameters that a later one has, too."""
        if not self._made_one:
            return
        self._made_one = False
        living = [each for each in self._made if each.optimizer() is not None]
        if len(living) < self._next_look:
            return
        newest = living[-1]
        same = [each for each in living if each.parameters & newest.parameters and each.steps]
        if len(same) < _LEAST_LIVING - 1 or newest.place is None:
            return
        if sum(each.place == newest.place for each in same) < _LEAST_LIVING - 1:
            return  # made at different lines: several on purpose
        old = [optimizer for each in same if each is not newest and (optimizer := each.optimizer()) is not None]
        self._next_look = 2 * len(living)
        held = holders_of(old[:2])
        if not held or held[0].is_bounded:
            return  # nobody holds them: the collector has not been round yet
        sizes = [_state_bytes(optimizer) for optimizer in old]
        kind = type(old[0]).__name__
        is_on_card = self.situation.is_on_card()
        self.found.append(
            Finding(
                code="DF110",
                claim=f"{kind} is made anew for the same parameters while {held[0].name} keeps the old ones: "
                f"{len(old)} of them hold {format_bytes(sum(sizes))} of states of "
                f"{'the card' if is_on_card else 'the host'}'s memory, and the new one begins without any.",
                advice=f"Make the optimizer once, before the loop; to begin anew, let {held[0].name} go first.",
                place=newest.place,
                more_places=tuple(each.place for each in held[:1] if each.place is not None),
                evidence=Evidence(
                    memory=DEVICE if is_on_card else HOST,
                    size_bytes=sum(sizes),
                    bytes_per_step=max(sizes, default=0),
                    holder=held[0].name,
                    chain=held[0].chain,
                    numbers={"optimizers": len(old) + 1},
                ),
            )
        )

    def _look_at_schedules(self, census: Census, step: int) -> None:
        """Whether a schedule moves once for each backward pass, where an optimizer's step has several of them."""
        for schedule in census.schedulers:
            now = (int(getattr(schedule, "last_epoch", 0)), step, self.situation.backwards)
            before = self._schedules.get(schedule)
            self._schedules[schedule] = now
            if before is None:
                continue
            moved, steps, backwards = (late - early for early, late in zip(before, now, strict=True))
            if steps > 0 and moved == backwards and moved >= 2 * steps and not _steps_for_all_ranks(moved // steps):
                self._too_fast[schedule] = self._too_fast.get(schedule, 0) + 1
                if self._too_fast[schedule] == _TIMES:
                    self.found.append(_too_fast(schedule, moved // steps))
            else:
                self._too_fast.pop(schedule, None)


def _parameters_of(optimizer: Any) -> Iterator[Any]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _state_bytes(optimizer: Any) -> int:
    return sum(
        value.nbytes
        for state in optimizer.state.values()
        for value in state.values()
        if isinstance(value, torch.Tensor)
    )


def _steps_for_all_ranks(times: int) -> bool:
    """Whether it may be Accelerate's, which steps a schedule once for each rank at every step."""
    distributed = torch.distributed
    return bool(distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() == times)


def _cleared_too_late(optimizer: Any) -> Finding:
    codes = program_codes()
    cleared = next(filter(None, (source_places.of_call(code, "zero_grad") for code in codes)), None)
    step = program_place()
    return Finding(
        code="DF304",
        claim=f"{type(optimizer).__name__} has stepped {_TIMES} times in a row without a single gradient, each time "
        f"after a backward pass: they were cleared between the two, and nothing is learned.",
        advice="Call zero_grad before the backward pass or after the optimizer's step, not between them.",
        place=cleared or step,
        more_places=(step,) if cleared and step else (),
        evidence=Evidence(numbers={"steps": _TIMES}),
    )


def _too_fast(schedule: Any, times: int) -> Finding:
    codes = program_codes()
    place = next(filter(None, (source_places.of_method_call(code, "step", "sched") for code in codes)), None)
    return Finding(
        code="DF303",
        claim=f"{type(schedule).__name__} moves {times} times for each step of its optimizer, once for each backward "
        f"pass: gradients of {times} micro-batches are accumulated, and the learning rate runs {times} times as fast.",
        advice="Step the schedule where the optimizer steps, after it.",
        place=place,
        evidence=Evidence(numbers={"moves_per_step": times}),
    )

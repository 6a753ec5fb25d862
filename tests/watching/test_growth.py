"""What each step leaves, told from what a warm-up, a cache or a long batch does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from dryfit.watching.graphs import reaches, walk
from dryfit.watching.growth import Growth
from dryfit.watching.torch_private import next_sequence_number

CPU = {"cpu"}
LARGE = 64 << 10  # elements: far above what counts


class Steps:
    """Runs steps of a made-up program, with a census after each of what it has in `alive`."""

    def __init__(self) -> None:
        self.alive: list[torch.Tensor] = []
        self.growth = Growth(next_sequence_number())
        self._step = 0

    def end(self, *in_use: torch.Tensor, steps: int = 1) -> None:
        self._step += steps
        self.growth.note(self._step, next_sequence_number(), [*self.alive, *in_use], 0, has_backward=True)
        self.growth.compare(CPU)


def test_tensors_of_every_step_are_growth_from_the_fifth_census_on() -> None:
    steps = Steps()
    said = []
    for _ in range(6):
        steps.alive.append(torch.empty(LARGE))
        steps.end()
        said.append((steps.growth.keeps_tensors(CPU), steps.growth.is_confirmed()))
    assert said == [(False, False), (False, False), (True, False), (True, False), (True, True), (True, True)]
    assert sum(each.size_bytes for each in steps.growth.settled()[0].storages()) == 4 * LARGE


def test_a_warm_up_of_some_steps_is_none() -> None:
    steps = Steps()
    for number in range(7):
        if number < 3:
            steps.alive.append(torch.empty(LARGE))
        steps.end()
    assert not steps.growth.keeps_tensors(CPU)


@pytest.mark.parametrize("room", [4, 7, 11])
def test_a_window_that_has_filled_is_none_and_what_stays_longer_is(room: int) -> None:
    steps = Steps()
    for _ in range(3 * room):
        steps.alive = [*steps.alive, torch.empty(LARGE)][-room:]
        steps.end()
    assert not steps.growth.keeps_tensors(CPU)
    for _ in range(room + 2):  # nothing goes any more
        steps.alive.append(torch.empty(LARGE))
        steps.end()
    assert steps.growth.keeps_tensors(CPU)
    assert steps.growth.kept_for_steps > room


def test_growth_is_told_of_however_many_censuses_there_were() -> None:
    steps = Steps()
    for _ in range(60):
        steps.alive.append(torch.empty(LARGE))
        steps.end()
    assert steps.growth.keeps_tensors(CPU)
    assert steps.growth.kept_for_steps == 58
    # Of the oldest that is left, the newest, and one between.
    first, middle, last = (each.first_step for each in steps.growth.spread())
    assert first + 8 < middle < last - 8


def test_a_cache_that_fills_at_some_steps_is_none() -> None:
    steps = Steps()
    for number in range(7):
        if number in (0, 1, 2, 4, 6):
            steps.alive.append(torch.empty(LARGE))
        steps.end()
    assert not steps.growth.keeps_tensors(CPU)


def test_what_is_in_use_as_a_step_ends_is_none_whatever_its_size() -> None:
    steps = Steps()
    for number in range(8):
        steps.end(torch.empty(LARGE * (number + 1)))
    assert not steps.growth.keeps_tensors(CPU)


def test_tensors_that_are_made_anew_in_the_same_places_are_none() -> None:
    steps = Steps()
    for _ in range(12):
        steps.alive = [torch.empty(LARGE) for _ in range(50)]
        steps.end()
        assert not steps.growth.keeps_tensors(CPU)


def test_a_tensor_that_is_kept_is_not_taken_for_one_that_went() -> None:
    # What a step lets go of leaves its `id` for the next to take.
    steps = Steps()
    for _ in range(8):
        passing = [torch.empty(8) for _ in range(4)]
        steps.end(*passing)
        del passing
        steps.alive.append(torch.empty(LARGE))
    assert steps.growth.keeps_tensors(CPU) and steps.growth.is_confirmed()


def test_small_tensors_and_those_elsewhere_do_not_count() -> None:
    steps = Steps()
    for _ in range(7):
        steps.alive += [torch.empty(8), torch.empty(LARGE)]
        steps.end()
    assert steps.growth.keeps_tensors(CPU)
    assert not steps.growth.keeps_tensors({"cuda:0"})
    small = Steps()
    for _ in range(7):
        small.alive.append(torch.empty(8))
        small.end()
    assert not small.growth.keeps_tensors(CPU)


def test_rare_censuses_count_by_the_steps_between() -> None:
    # One tensor in all of ten steps is no growth of each step.
    steps = Steps()
    for _ in range(7):
        steps.alive.append(torch.empty(LARGE))
        steps.end(steps=10)
    assert not steps.growth.keeps_tensors(CPU)


def test_no_tensor_is_kept_by_being_counted() -> None:
    steps = Steps()
    for _ in range(4):
        steps.alive.append(torch.empty(LARGE))
        steps.end()
    assert [len(each.kept) for each in steps.growth.intervals] == [1, 1, 1, 1]
    steps.alive.clear()
    assert [len(each.kept) for each in steps.growth.intervals] == [0, 0, 0, 0]


def test_many_censuses_are_joined_and_lose_nothing() -> None:
    steps = Steps()
    for _ in range(60):
        steps.alive.append(torch.empty(LARGE))
        steps.end()
    assert len(steps.growth.intervals) == 24
    assert sum(len(each.kept) for each in steps.growth.intervals) == 60
    assert steps.growth.intervals[0].steps == 37
    steps.alive.clear()
    assert sum(len(each.kept) for each in steps.growth.intervals) == 0


def test_parameters_and_their_gradients_are_referred_to_by_nothing() -> None:
    # torch refuses to swap tensors that something refers to weakly.
    parameter = torch.nn.Parameter(torch.ones(3))
    growth = Growth(0)
    for step in range(1, 4):
        parameter.grad = torch.ones(3)
        growth.note(step, 0, [parameter, parameter.grad], 0, has_backward=True)
    torch.utils.swap_tensors(parameter, torch.nn.Parameter(torch.zeros(3)))
    assert parameter.grad is None


@pytest.mark.parametrize(
    ("keep", "grows"), [(lambda total, loss: total + loss, True), (lambda _, loss: loss, False)], ids=["sum", "last"]
)
def test_nodes_are_counted_by_the_step_that_made_them(
    keep: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], grows: bool
) -> None:
    weight = torch.nn.Parameter(torch.ones(4))
    total, marks = torch.zeros(()), []
    for _ in range(5):
        marks.append(next_sequence_number())
        total = keep(total, (weight * 2).sum())
    found = walk([total], marks, old_before=marks[-1])
    assert found.nodes == ([3, 3, 3, 3, 3] if grows else [0, 0, 0, 0, 2])
    assert [each is total for each in found.carriers] == ([True] if grows else [])


def test_inputs_that_wait_for_gradients_are_told_from_parameters() -> None:
    weight, inputs = torch.nn.Parameter(torch.ones(4)), torch.ones(4, requires_grad=True)
    found = walk([(weight * inputs).sum()], [0], old_before=0)
    assert [each is inputs for each in found.leaves] == [True]


def test_a_backward_pass_reaches_the_calls_that_it_goes_through() -> None:
    weight = torch.nn.Parameter(torch.ones(4))
    first = next_sequence_number()
    early = (weight * 2).sum()
    last = next_sequence_number()
    late = (weight * 3).sum()
    assert reaches([early + late], first, last)
    assert not reaches(late, first, last)

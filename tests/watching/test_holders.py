"""Who keeps an object, by name and line; and that looking keeps nothing alive."""

from __future__ import annotations

import gc
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dryfit.watching.frames import running_frames, variables_of
from dryfit.watching.held import Held, holders_of
from dryfit.watching.holders import ways_to


class Thing:
    """Something to be held."""


class Keeper:
    def __init__(self) -> None:
        self.things: list[Thing] = []
        self.latest: Thing | None = None

    def keep(self, thing: Thing) -> None:
        self.things.append(thing)

    def replace(self, thing: Thing) -> None:
        if self.latest is None:
            self.latest = Thing()
        self.latest = thing


SHELF: list[Thing] = []


def only(targets: list[Any]) -> Held:
    [held] = holders_of(targets)
    return held


def text_at(held: Held) -> str:
    assert held.place is not None and held.place.file == __file__
    return Path(__file__).read_text().splitlines()[held.place.line - 1].strip()


def test_a_list_of_a_running_function() -> None:
    kept = []
    for _ in range(3):
        kept.append(Thing())
    held = only(kept[:2])
    assert (held.name, text_at(held)) == ("kept", "kept.append(Thing())")
    assert held.of == [0, 1]
    assert held.is_certain and not held.is_bounded


def test_an_attribute_by_the_method_that_fills_it() -> None:
    keeper = Keeper()
    keeper.keep(Thing())
    held = only([keeper.things[0]])
    assert (held.name, text_at(held)) == ("self.things", "self.things.append(thing)")
    assert held.owner is Keeper


def test_a_name_of_the_module() -> None:
    SHELF.append(Thing())
    try:
        assert only([SHELF[0]]).name == "SHELF"
    finally:
        SHELF.clear()


def test_a_dictionary_within_a_dictionary_of_lists() -> None:
    history: dict[str, list[Thing]] = {"loss": [], "rate": []}
    for _ in range(2):
        history["loss"].append(Thing())
    held = only([history["loss"][0], history["loss"][1]])
    assert held.name == 'history["loss"]'
    assert held.chain[0] == "history['loss'][0]"


def test_a_closure_by_the_variable_it_has() -> None:
    def collector() -> Callable[[Thing], None]:
        hidden: list[Thing] = []

        def collect(thing: Thing) -> None:
            hidden.append(thing)

        return collect

    collect = collector()
    thing = weakref.ref(_given(collect))
    target = thing()
    held = next(each for each in holders_of([target]) if each.name != "target")
    assert (held.name, text_at(held)) == ("hidden", "hidden.append(thing)")


def _given(collect: Callable[[Thing], None]) -> Thing:
    thing = Thing()
    collect(thing)
    return thing


def test_what_a_caught_exception_keeps() -> None:
    def fails() -> None:
        thing = Thing()
        raise ValueError(id(thing))

    errors = []
    try:
        fails()
    except ValueError as error:
        errors.append(error)
    frame = errors[0].__traceback__.tb_next.tb_frame  # type: ignore[union-attr]
    targets = [each for each in gc.get_referents(frame) if type(each) is Thing]
    del frame
    held = next(each for each in holders_of(targets) if each.in_error)
    assert held.in_error == "errors"
    assert "tb_frame" in held.chain[0]


def test_a_generator_that_waits() -> None:
    def waits() -> Iterator[int]:
        thing = Thing()
        yield id(thing)

    generator = waits()
    number = next(generator)
    thing = next(each for each in gc.get_objects() if id(each) == number)
    names = {way.text for way in ways_to([thing])[0]}
    assert "generator.<thing>" in names


def test_two_holders_share_what_is_asked_for() -> None:
    one, other = [Thing()], [Thing()]
    assert {held.name: held.of for held in holders_of([one[0], other[0]])} == {"one": [0], "other": [1]}


@pytest.mark.parametrize("size", [None, 4])
def test_a_deque_is_bounded_by_its_length(size: int | None) -> None:
    queue: deque[Thing] = deque(maxlen=size)
    queue.append(Thing())
    assert only([queue[0]]).is_bounded is (size is not None)


def test_a_list_that_the_same_loop_shortens_is_bounded() -> None:
    window: list[Thing] = []
    for _ in range(3):
        window.append(Thing())
        if len(window) > 30:
            del window[0]
    assert only([window[0]]).is_bounded


def test_a_list_that_an_outer_loop_begins_anew_is_not() -> None:
    for _ in range(2):
        epoch: list[Thing] = []
        for _ in range(3):
            epoch.append(Thing())
    assert not only([epoch[0]]).is_bounded


def test_an_attribute_that_is_made_the_first_time_only_is_not() -> None:
    keeper = Keeper()
    keeper.replace(Thing())
    held = only([keeper.latest])
    assert (held.name, text_at(held)) == ("self.latest", "self.latest = thing")
    assert not held.is_bounded


def test_a_place_that_comes_round_again_is_bounded() -> None:
    ring: dict[int, Thing] = {}
    for number in range(9):
        ring[number % 4] = Thing()
    assert only([ring[0]]).is_bounded


def test_looking_keeps_nothing_alive_and_leaves_no_garbage() -> None:
    gc.collect()
    gc.disable()
    try:

        def holds() -> weakref.ref[Thing]:
            thing, other = Thing(), [Thing()]
            assert {held.name for held in holders_of([thing, other[0]])} == {"thing", "other"}
            reference = weakref.ref(thing)
            del thing
            assert reference() is None, "the copy of the variables that was looked at has it"
            return weakref.ref(other[0])

        reference = holds()
        assert reference() is None, "a circle of frames has it"
    finally:
        gc.enable()


def test_variables_that_the_program_asked_for_itself_stay() -> None:
    thing = Thing()
    own = locals()
    with variables_of(sys._getframe()) as values:
        assert values["thing"] is thing
    assert own["thing"] is thing


def test_frames_of_ours_are_left_out() -> None:
    assert running_frames()[0].f_code.co_name == "test_frames_of_ours_are_left_out"

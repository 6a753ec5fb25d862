"""Growth that no holder explains: when it asks for a look at all objects, and when it is one."""

from __future__ import annotations

import pytest

from dryfit.watching.kinds import allocator
from dryfit.watching.rising import is_rising
from dryfit.watching.situation import Situation

MIB = 1 << 20


def test_rising_is_each_step_above_the_one_before_and_enough_in_all() -> None:
    assert is_rising([n * 2 * MIB for n in range(10)])
    assert not is_rising([n * 2 * MIB for n in range(9)])
    assert not is_rising([n * MIB for n in range(10)])
    assert not is_rising([0, *(n * 2 * MIB for n in range(8)), 0])


@pytest.mark.parametrize("is_named", [False, True])
def test_two_looks_are_asked_for_and_none_where_the_growth_has_a_name(
    is_named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    situation = Situation()
    situation.has_named_growth = is_named
    kind = allocator.Allocator(situation, is_live=False)
    asked = []
    for step in range(1, 14):
        monkeypatch.setattr(allocator, "allocated_bytes", lambda step=step: step * 2 * MIB)
        if kind.needs_census(step):
            asked.append(step)
        kind.step_is_over(step, allocator.Census([], [], [], []) if step in asked else None)
    assert asked == ([] if is_named else [9, 10])
    assert [found.code for found in kind.found] == ([] if is_named else ["DF114"])

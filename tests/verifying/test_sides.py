"""Which steps of a long run a row keeps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from dryfit.verifying import sides


def test_a_row_keeps_the_step_with_the_peak_however_late_it_is() -> None:
    sizes = {step: [10, 20, 30] for step in range(1, 51)}
    sizes[41] = [99, 20, 30]
    sizes[42] = [10, 88, 30]
    process: Any = SimpleNamespace(phases_of_steps=[(step, {"backward": each}) for step, each in sizes.items()])
    figures = sides._figures(process, 0)
    assert [each.step for each in figures] == [*range(1, 33), 41, 42, 50]
    assert max(each.allocated_bytes for each in figures) == 99
    assert max(each.reserved_bytes for each in figures) == 88


def test_a_run_without_steps_keeps_none() -> None:
    process: Any = SimpleNamespace(phases_of_steps=[])
    assert sides._figures(process, 0) == []

"""Two runs, figure by figure: no torch, no card."""

from __future__ import annotations

from dryfit.verifying.comparison import Pair, alike_until, by_phase, by_step, peaks

from .sides import MIB, figures, side, trained


def test_equal_runs_are_off_by_nothing() -> None:
    real, virtual = trained(3), trained(3)
    for line in [peaks(real, virtual), *by_step(real, virtual), *by_phase(real, virtual)]:
        assert (line.allocated.off_bytes, line.reserved.off_bytes, line.total.off_bytes) == (0, 0, 0)
    assert alike_until(real, virtual) == len(real.figures) == 10


def test_a_difference_is_found_where_it_is() -> None:
    real, virtual = trained(3), trained(3, more=5)
    assert peaks(real, virtual).allocated == Pair(real_bytes=203 * MIB, virtual_bytes=207 * MIB)
    off = {line.name: line.allocated.off_bytes for line in by_step(real, virtual)}
    assert off == {"setup": 0, "step 1": 0, "step 2": 4 * MIB, "step 3": 0}
    off = {line.name: line.reserved.off_bytes for line in by_phase(real, virtual)}
    assert off == {"setup": 0, "forward": 0, "backward": 5 * MIB, "optimizer step": 0}
    assert real.figures[alike_until(real, virtual)] == figures(2, "backward", 202, 300, 600)


def test_what_only_one_run_has_is_not_compared() -> None:
    real, virtual = trained(1, outside=None), trained(3)
    last = by_step(real, virtual)[-1]
    assert last.name == "step 3"
    assert last.allocated == Pair(real_bytes=None, virtual_bytes=203 * MIB)
    assert last.allocated.off_bytes is None and last.allocated.off_share is None
    assert peaks(real, virtual).total.off_bytes is None
    assert alike_until(real, virtual) == 4


def test_runs_without_figures_have_a_peak_of_nothing_known() -> None:
    line = peaks(side(), side())
    assert line.allocated == Pair(real_bytes=None, virtual_bytes=None)
    assert side().peak_reserved_bytes == 0
    assert side().peak_total_bytes is None


def test_steps_come_in_the_order_of_their_numbers() -> None:
    real = side(*(figures(step, "forward", 1, 2) for step in (0, 1, 2, 3)))
    virtual = side(*(figures(step, "forward", 1, 2) for step in range(12)))
    assert [line.name for line in by_step(real, virtual)] == ["setup", *(f"step {n}" for n in range(1, 12))]

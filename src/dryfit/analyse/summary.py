"""Sums up one card of a recording, replayed and attributed, as its footprint."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from dryfit.analyse.attribution import Attribution
from dryfit.analyse.block_map import block_map
from dryfit.analyse.cached import cached_at_the_reserved_peak
from dryfit.analyse.footprint import Footprint, OwnerChange, StepFootprint
from dryfit.analyse.foreach import temporaries_of_foreach
from dryfit.analyse.growth import steady_growth
from dryfit.analyse.heaviest import heaviest_lines, heaviest_tensors
from dryfit.analyse.holdings import alive_at, changes, holdings_at, ledger_of
from dryfit.analyse.kept_calls import kept_of_calls
from dryfit.analyse.module_tree import module_tree
from dryfit.analyse.notes import notes_on
from dryfit.analyse.numbers import reconciled
from dryfit.analyse.out_of_memory import last_out_of_memory
from dryfit.analyse.peaks import Levels, peak_at, states_of, step_footprint, step_moments
from dryfit.analyse.recipe import recipe_of
from dryfit.analyse.timeline import Timeline
from dryfit.recording.model import AFTER_BACKWARD, AFTER_STEP, CLIP, OPTIMIZER_STEP, DeviceTrace, Recording
from dryfit.recording.replay import Replay

_AFTER_BACKWARD = (AFTER_BACKWARD, CLIP, OPTIMIZER_STEP, AFTER_STEP)


def footprint_of(
    recording: Recording,
    trace: DeviceTrace,
    replay: Replay,
    attribution: Attribution,
    facts: array[int],
    other_devices: Sequence[int] = (),
) -> Footprint:
    """Sum up one card; `trace` has the marks to go by, be they the recording's or found from its stacks.

    `facts` are `facts_of` the recording's stacks, `other_devices` those that the recording has too.
    """
    lifetimes = replay.lifetimes
    timeline, levels = Timeline(trace.marks, len(trace.events)), Levels(replay)
    ledger = ledger_of(lifetimes, attribution, timeline)
    moments = step_moments(timeline, levels)
    top, reserved_top = levels.highest_allocated(), levels.highest_reserved()
    holdings = holdings_at({top} | states_of(moments), lifetimes, ledger)
    peak = peak_at(top, *timeline.at(top), levels, holdings[top])
    steps = tuple(step_footprint(each, levels, holdings) for each in moments)
    alive = alive_at(top, lifetimes)
    lines = heaviest_lines(alive, attribution, ledger)
    advice = (
        temporaries_of_foreach(recording.stacks, alive, lifetimes, attribution, ledger),
        kept_of_calls(trace, facts, alive, lifetimes, attribution, ledger),
    )
    out_of_memory = last_out_of_memory(trace, replay, levels, timeline)
    return Footprint(
        source=recording.source,
        device=trace.device,
        about=dict(recording.about),
        peak=peak,
        peak_reserved_bytes=levels.reserved(reserved_top),
        modules=module_tree(alive, attribution, ledger, recording.modules),
        lines=lines,
        tensors=heaviest_tensors(alive, lifetimes, attribution, timeline),
        steps=steps,
        first_against_steady=_first_against_steady(steps),
        growth=steady_growth(steps, moments, holdings, lifetimes, attribution, ledger),
        cached=cached_at_the_reserved_peak(
            trace,
            replay,
            levels,
            ledger.largest_request_bytes,
            out_of_memory.sentence if out_of_memory else "",
        ),
        numbers=reconciled(
            peak,
            block_map(trace, replay, top, levels.reserved(top)),
            levels.reserved(reserved_top),
            timeline.words(reserved_top),
            recording.about,
        ),
        out_of_memory=out_of_memory,
        recipe=recipe_of(trace.labels, lifetimes, attribution, ledger),
        notes=(*filter(None, advice), *notes_on(recording.source, trace, replay, peak, lines, other_devices)),
    )


def _first_against_steady(steps: Sequence[StepFootprint]) -> tuple[OwnerChange, ...]:
    """The owners at the first step's peak and at the last whole one's: its backward pass, if it had one, is over."""
    of_a_loop = [step for step in steps if step.step]
    if of_a_loop and not any(each.phase in _AFTER_BACKWARD for each in of_a_loop[-1].phases):
        del of_a_loop[-1]
    return changes(of_a_loop[0].peak.owners, of_a_loop[-1].peak.owners) if len(of_a_loop) > 1 else ()

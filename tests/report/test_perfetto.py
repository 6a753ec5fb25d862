"""The trace for ui.perfetto.dev: its form, its figures, and that thinning keeps the peaks."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from dryfit.analyse.analysis import Analysis
from dryfit.analyse.stack_facts import facts_of
from dryfit.analyse.summary import footprint_of
from dryfit.recording import model
from dryfit.recording.replay import replay
from dryfit.report.perfetto import to_perfetto

from ..analyse.build import MIB, Script, at
from ..analyse.by_label import attributed


def analysed(script: Script) -> Analysis:
    recording = script.recording()
    trace = recording.devices[0]
    of = replay(trace)
    attribution = attributed(recording, trace, of)
    footprint = footprint_of(recording, trace, of, attribution, facts_of(recording.stacks))
    return Analysis(recording=recording, trace=trace, replay=of, attribution=attribution, footprint=footprint)


def two_steps(allocations: int = 3) -> Script:
    script = Script()
    script.phase(model.SETUP, step=0)
    script.alloc(4 * MIB, at("train.py", 1), owner=model.PARAMETER, name="w")
    for step in (1, 2):
        script.phase(model.FORWARD, step=step)
        held = [script.alloc(step * MIB, at("train.py", 2), owner=model.ACTIVATION) for _ in range(allocations)]
        script.phase(model.BACKWARD)
        script.free(*held)
    script.out_of_memory(64 * MIB, free_bytes=3 * MIB)
    return script


@pytest.fixture
def trace() -> dict[str, Any]:
    return to_perfetto(analysed(two_steps()))


def events(trace: dict[str, Any], phase: str) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == phase]


def test_the_form_is_that_of_the_trace_event_format(trace: dict[str, Any]) -> None:
    assert json.loads(json.dumps(trace)) == trace
    for event in trace["traceEvents"]:
        assert event["ph"] in "MXCi"
        assert isinstance(event["name"], str) and event["name"]
        assert event["pid"] == 0
        if event["ph"] != "M":
            assert isinstance(event["ts"], int) and event["ts"] >= 0
        if event["ph"] == "C":
            assert event["args"] and all(isinstance(value, int) for value in event["args"].values())
        if event["ph"] == "X":
            assert event["dur"] >= 0
        if event["ph"] == "i":
            assert event["s"] == "p"
    assert [event["args"]["name"] for event in events(trace, "M")] == ["cuda:0", "steps", "phases"]


def test_the_counters_are_the_allocator_s_figures_and_owners_sum_to_them(trace: dict[str, Any]) -> None:
    of = analysed(two_steps()).replay
    memory = [event["args"] for event in events(trace, "C") if event["name"] == "memory"]
    owners = [event["args"] for event in events(trace, "C") if event["name"] == "owners"]
    assert [figures["allocated"] for figures in memory] == list(of.allocated_bytes)
    assert [figures["reserved"] for figures in memory] == list(of.reserved_bytes)
    assert [sum(held.values()) for held in owners] == list(of.allocated_bytes)
    assert {tuple(held) for held in owners} == {(model.PARAMETER, model.ACTIVATION)}
    assert max(held[model.ACTIVATION] for held in owners) == 6 * MIB


def test_steps_and_phases_are_slices_beside_each_other(trace: dict[str, Any]) -> None:
    rows: dict[int, list[dict[str, Any]]] = {}
    for event in events(trace, "X"):
        rows.setdefault(event["tid"], []).append(event)
    assert [event["name"] for event in rows[1]] == ["setup", "step 1", "step 2"]
    assert [event["name"] for event in rows[2]] == ["setup", "forward", "backward", "forward", "backward"]
    for row in rows.values():
        for first, second in itertools.pairwise(row):
            assert first["ts"] + first["dur"] == second["ts"]


def test_the_peak_and_the_error_are_marked(trace: dict[str, Any]) -> None:
    peak, oom = events(trace, "i")
    assert peak["name"] == "peak: 10.00 MiB allocated"
    assert peak["args"] == {"allocated": 10 * MIB, "where": "step 2, forward"}
    assert oom["name"] == "out of memory: 64.00 MiB asked for"
    assert oom["args"] == {"requested": 64 * MIB, "free": 3 * MIB, "where": "step 2, backward"}
    at_peak = [event for event in events(trace, "C") if event["name"] == "memory" and event["ts"] == peak["ts"]]
    assert at_peak[-1]["args"]["allocated"] == 10 * MIB


def test_a_long_run_is_thinned_and_keeps_its_peaks_and_its_end() -> None:
    analysis = analysed(two_steps(allocations=400))
    trace = to_perfetto(analysis, most_moments=60)
    memory = [event["args"] for event in events(trace, "C") if event["name"] == "memory"]
    assert 20 <= len(memory) <= 60
    assert max(figures["allocated"] for figures in memory) == analysis.footprint.peak.allocated_bytes
    assert max(figures["reserved"] for figures in memory) == analysis.footprint.peak_reserved_bytes
    assert memory[-1]["allocated"] == analysis.replay.allocated_bytes[-1]
    assert trace["otherData"]["moments"] == f"{len(memory)} of {len(analysis.trace.events)} events"


def test_times_never_go_back_and_where_there_are_none_events_are_counted() -> None:
    script = two_steps()
    script.events.time_us[5] = 0
    times = [event["ts"] for event in events(to_perfetto(analysed(script)), "C")]
    assert times == sorted(times)
    for place in range(len(script.events)):
        script.events.time_us[place] = 0
    trace = to_perfetto(analysed(script))
    times = [event["ts"] for event in events(trace, "C") if event["name"] == "memory"]
    assert times == list(range(len(script.events)))
    assert trace["otherData"]["time"] == "number of the event"


def test_a_recording_without_events_is_a_trace_without_counters() -> None:
    assert {event["ph"] for event in to_perfetto(analysed(Script()))["traceEvents"]} == {"M"}

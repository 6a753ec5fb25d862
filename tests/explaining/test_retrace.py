"""Recorded requests through PyTorch's own allocator come to what was recorded."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.recording.test_replay import OPERATIONS, ran

from dryfit.errors import DryfitError
from dryfit.recording import model
from dryfit.recording.model import DeviceTrace, Events
from dryfit.recording.replay import replay
from dryfit.rehearse.allocator_settings import AllocatorSettings, recorded_settings
from dryfit.rehearse.requests import requests_of
from dryfit.rehearse.retrace import AllocatorProcess, Retraces, retraces

from .on_card import AFTER_START, FROM_EMPTY, GIB, MIB, SETTINGS, Recorded, recorded

PLAIN = AllocatorSettings()
EXPANDABLE = AllocatorSettings(expandable_segments=True)


def of(run: Recorded, process: AllocatorProcess) -> Retraces:
    about = run.recording.about
    return Retraces(run.recording.devices[0], recorded_settings(about["allocator_settings"]), process)


@pytest.mark.parametrize("allocator", SETTINGS)
@pytest.mark.parametrize("case", FROM_EMPTY)
def test_the_peaks_are_those_that_the_recorded_allocator_counted(
    case: str, allocator: str, process: AllocatorProcess
) -> None:
    run = recorded(case, allocator)
    retrace = of(run, process)
    found = retrace(memory_bytes=retrace.capacity_bytes)
    assert (found.peak_allocated_bytes, found.peak_active_bytes, found.peak_reserved_bytes) == (
        run.allocated_bytes,
        run.active_bytes,
        run.reserved_bytes,
    )
    assert found.begin_is_exact
    assert found.failed_event is None
    assert (
        found.ooms
        == found.unserved
        == len([event for event in run.recording.devices[0].events.kind if event == model.OOM])
    )
    assert found.retries == run.retries


@pytest.mark.parametrize("case", AFTER_START)
def test_a_recording_that_begins_later_begins_with_what_was_held(case: str, process: AllocatorProcess) -> None:
    run = recorded(case)
    trace = run.recording.devices[0]
    assert not trace.starts_empty
    retrace = of(run, process)
    found = retrace(memory_bytes=retrace.capacity_bytes)
    assert found.begin_is_exact
    assert found.begin_reserved_bytes == 102 * MIB
    assert (found.peak_allocated_bytes, found.peak_reserved_bytes) == (run.allocated_bytes, run.reserved_bytes)


def test_under_other_settings_what_was_held_is_packed(process: AllocatorProcess) -> None:
    found = of(recorded("emptied-after-start"), process)(EXPANDABLE)
    assert not found.begin_is_exact
    assert found.begin_reserved_bytes == 42 * MIB  # 40 MiB, and the two small tensors; not the 60 MiB that lay free


def test_what_the_card_had_for_pytorch_is_found_from_the_events(process: AllocatorProcess) -> None:
    assert of(recorded("fragments"), process).capacity_bytes == 4 * GIB
    retried = of(recorded("retried"), process).capacity_bytes
    assert retried is not None
    assert 2000 * MIB <= retried < 5100 * MIB
    assert of(recorded("emptied"), process).capacity_bytes is None
    limited = of(recorded("limited"), process).capacity_bytes
    assert limited is not None
    assert 900 * MIB <= limited < 1200 * MIB  # a quarter of the card, found from what was refused


def test_a_request_that_was_served_and_fails_on_a_smaller_card_ends_it(process: AllocatorProcess) -> None:
    run = recorded("streams")
    found = of(run, process)(memory_bytes=300 * MIB)
    assert not found.served_all
    assert found.failed_bytes == 400 * MIB
    events = run.recording.devices[0].events
    assert found.failed_event is not None
    assert (events.kind[found.failed_event], events.size[found.failed_event]) == (model.ALLOC, 400 * MIB)


def test_fragments_lie_together_in_expandable_segments(process: AllocatorProcess) -> None:
    retrace = of(recorded("fragments"), process)
    before, after = retrace(memory_bytes=4 * GIB), retrace(EXPANDABLE, memory_bytes=4 * GIB)
    assert not before.served_all
    assert after.served_all
    assert before.peak_reserved_bytes == recorded("fragments").reserved_bytes > 2300 * MIB
    # What is there at once: 1900 MiB, 14 parts of 40, and the holes between those, which the largest batch filled.
    assert after.peak_reserved_bytes < 2700 * MIB


def test_an_allocator_that_collects_garbage_needs_a_fraction(process: AllocatorProcess) -> None:
    retrace = of(recorded("retried"), process)
    collecting = AllocatorSettings(garbage_collection_threshold=0.5)
    without = retrace(collecting, memory_bytes=8 * GIB)
    assert without.peak_reserved_bytes == 7100 * MIB
    assert retrace(collecting, memory_bytes=8 * GIB, memory_fraction=0.999).peak_reserved_bytes < 6000 * MIB


@given(OPERATIONS, st.sampled_from([0, 4]), st.booleans())
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_stream_of_requests_comes_to_the_sums_of_its_recording(
    process: AllocatorProcess, operations: list[tuple[str, int]], divisions: int, is_expandable: bool
) -> None:
    allocator = ran(operations, divisions=divisions, is_expandable=is_expandable)
    allocator_settings: dict[str, Any] = {
        "roundup_power2_divisions": {str(1 << power): divisions for power in range(16)},
        "expandable_segments": is_expandable,
    }
    trace = allocator.trace()
    recorded = recorded_settings(allocator_settings)
    found = process.play(requests_of(trace, recorded, recorded), recorded)
    replayed = replay(trace, allocator_settings)
    assert found.peak_allocated_bytes == max(replayed.allocated_bytes, default=0)
    assert found.peak_active_bytes == max(replayed.active_bytes, default=0)
    if not is_expandable:  # the model's expandable segments know only their ends
        assert found.peak_reserved_bytes == max(replayed.reserved_bytes, default=0)
    assert found.ooms == 0


@given(OPERATIONS, st.integers(1, 40))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_stream_whose_beginning_was_lost_begins_where_its_events_say(
    process: AllocatorProcess, operations: list[tuple[str, int]], lost: int
) -> None:
    allocator = ran(operations)
    trace = allocator.trace(first_event=min(lost, len(allocator.events)))
    replayed = replay(trace)
    found = process.play(requests_of(trace, PLAIN, PLAIN), PLAIN)
    assert found.begin_allocated_bytes == replayed.before_allocated_bytes or not found.begin_is_exact
    assert found.ooms == 0
    if found.begin_is_exact:
        peak = max([replayed.before_active_bytes, *replayed.active_bytes])
        assert abs(found.peak_active_bytes - peak) <= 20 * MIB


def test_no_events_make_no_request(process: AllocatorProcess) -> None:
    trace = DeviceTrace(device=0, events=Events())
    found = process.play(requests_of(trace, PLAIN, PLAIN), PLAIN)
    assert (found.peak_reserved_bytes, found.ooms) == (0, 0)


def test_a_request_larger_than_any_card_fails_and_is_told(process: AllocatorProcess) -> None:
    events = Events()
    for kind, address, size in ((model.ALLOC, 512, 3 << 40), (model.FREE_COMPLETED, 512, 3 << 40)):
        for name, value in (("kind", kind), ("address", address), ("size", size)):
            getattr(events, name).append(value)
        for name in ("stream", "pool", "stack", "time_us"):
            getattr(events, name).append(0)
    found = process.play(requests_of(DeviceTrace(device=0, events=events), PLAIN, PLAIN), PLAIN)
    assert (found.failed_event, found.failed_bytes) == (0, 3 << 40)


def test_settings_that_torch_refuses_are_told_in_its_words(process: AllocatorProcess) -> None:
    requests = requests_of(DeviceTrace(device=0, events=Events()), PLAIN, PLAIN)
    with pytest.raises(DryfitError) as caught:
        process.play(requests, AllocatorSettings(max_split_size_bytes=MIB))
    assert str(caught.value).startswith("The recording could not be played under max_split_size_mb:1 with torch ")
    assert "too small" in str(caught.value)


def test_a_process_that_has_ended_is_an_error_of_ours() -> None:
    with retraces(DeviceTrace(device=0, events=Events())) as retrace:
        retrace._process._process.kill()
        with pytest.raises(
            DryfitError, match=r"^The process that plays recordings through PyTorch's allocator has ended"
        ):
            retrace()


def test_nothing_of_the_user_s_environment_reaches_the_allocator(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    run = recorded("emptied")
    (tmp_path / "torch.py").write_text("raise SystemExit('the wrong torch')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync")
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    monkeypatch.setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with retraces(run.recording.devices[0]) as retrace:
        assert retrace().peak_reserved_bytes == run.reserved_bytes


def test_the_parent_imports_no_torch() -> None:
    code = "import dryfit.rehearse.retrace, dryfit.explaining.explaining, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)

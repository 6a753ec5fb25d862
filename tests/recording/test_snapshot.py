"""Snapshots of PyTorch, of every version and in every form, become recordings."""

from __future__ import annotations

import base64
import csv
import gzip
import json
import lzma
import pickle
from pathlib import Path
from typing import Any

import pytest

from dryfit.errors import UsageError
from dryfit.recording.model import (
    ALLOC,
    FREE_COMPLETED,
    FREE_REQUESTED,
    OOM,
    OTHER,
    SEGMENT_ALLOC,
    Block,
    Recording,
    Segment,
)
from dryfit.recording.opening import open_recording
from dryfit.recording.replay import replay
from dryfit.recording.snapshot import from_snapshot
from dryfit.recording.stacks import EMPTY, MODULE_FILE, Frame

from .snapshots import BASE, MAIN, MIB, STACK, TRUTH, block, event, segment, snapshot

# Its trace and its segments are of two runs, which the index says too.
NOT_OF_ONE_RUN = "mosaic_test_trace_only.pickle.xz"
# Blocks from before the first event, alive at the peak: two of 154389504 bytes that fill their segments of 155189248,
# as the final state shows (too little was left over to split them). The index counts them as they were asked for.
UNSPLIT_BEFORE_BYTES = {"bcrafton_step.pickle.xz": 2 * (155189248 - 154389504)}


def one(recording: Recording) -> Any:
    (device,) = recording.devices
    return device


def trace_of(*events: dict[str, Any], **more: Any) -> Any:
    return one(from_snapshot({"device_traces": [list(events)], **more})).events


def test_events_keep_what_pytorch_wrote() -> None:
    recording = from_snapshot(snapshot(), about={"program": "train.py"})
    device = one(recording)
    events = device.events
    assert list(events.kind) == [SEGMENT_ALLOC, ALLOC, ALLOC, FREE_REQUESTED, FREE_COMPLETED]
    assert list(events.size) == [2 * MIB, 500, 1024, 1024, 1024]
    assert list(events.address) == [BASE, BASE, BASE + 512, BASE + 512, BASE + 512]
    assert list(events.time_us) == [0, 2, 3, 9, 9]
    assert recording.stacks.frames(events.stack[1]) == [
        Frame("/home/me/model.py", "forward", 3),
        Frame("/home/me/train.py", "main", 7),
    ]
    assert events.stack[0] == EMPTY
    assert device.starts_empty
    assert recording.source == "snapshot"
    assert recording.about == {"program": "train.py", "allocator_settings": snapshot()["allocator_settings"]}


def test_the_final_state_is_kept() -> None:
    recording = from_snapshot(snapshot())
    (found,) = one(recording).segments
    assert found[:6] == (BASE, 2 * MIB, 0, True, False, 0)
    assert [(b.address, b.size, b.state) for b in found.blocks] == [
        (BASE, 512, "active_allocated"),
        (BASE + 512, 2 * MIB - 512, "inactive"),
    ]
    assert len(recording.stacks.frames(found.blocks[0].stack)) == 2


def test_frames_can_be_renamed_and_left_out() -> None:
    def frame_of(file: str, name: str, line: int) -> Frame | None:
        return Frame(MODULE_FILE, "blocks.0", 0) if name == "forward" else None

    recording = from_snapshot(snapshot(), frame_of=frame_of)
    assert recording.stacks.frames(one(recording).events.stack[1]) == [Frame(MODULE_FILE, "blocks.0", 0)]
    assert one(recording).events.stack[2] == EMPTY


def test_equal_stacks_of_different_objects_are_one_stack() -> None:
    events = trace_of(event("alloc", frames=[dict(MAIN)]), event("alloc", frames=[dict(MAIN)]))
    assert events.stack[0] == events.stack[1] != EMPTY


def test_what_only_some_versions_write_may_be_missing() -> None:
    old = {"action": "alloc", "addr": BASE, "size": 512}  # no stream, no time_us, no frames
    events = trace_of(old, {**old, "addr": BASE + 512, "frames": STACK})
    assert list(events.stream) == list(events.time_us) == list(events.pool) == [0, 0]
    assert [stack == EMPTY for stack in events.stack] == [True, False]


def test_newer_keys_are_passed_over() -> None:
    new = event("alloc", compile_context="0/0", user_metadata="weights", extra={"a": [1]})
    state = {"host_traces": [[event("alloc")]], "external_annotations": [{"stage": "START"}]}
    assert len(trace_of(new, event("annotate", user_metadata="weights"), segments=[], **state)) == 2


def test_the_free_of_early_versions_is_both_halves() -> None:
    events = trace_of(event("alloc"), event("free"))
    assert list(events.kind) == [ALLOC, FREE_REQUESTED, FREE_COMPLETED]
    assert list(events.address) == [BASE] * 3


def test_an_unknown_action_is_kept_as_other() -> None:
    assert list(trace_of(event("annotate"), event("workspace_snapshot")).kind) == [OTHER, OTHER]


def test_an_oom_keeps_what_the_card_had_free() -> None:
    oom = {"action": "oom", "device_free": 3 * MIB, "size": 1 << 70 >> 8, "stream": 0, "frames": STACK}
    events = trace_of(event("alloc"), oom)
    assert (events.kind[1], events.address[1], events.size[1]) == (OOM, 3 * MIB, 1 << 62)


def test_pools_are_places_among_the_pools_named() -> None:
    state = [segment(segment_pool_id=(0, 3)), segment(address=BASE + 2 * MIB, segment_pool_id=[1, 0])]
    events = [event("alloc", pool_id=(0, 0)), event("alloc", BASE + 512, pool_id=(0, 3)), event("free_requested")]
    device = one(from_snapshot({"device_traces": [events], "segments": state}))
    assert device.pools == ((0, 0), (0, 3), (1, 0))
    assert list(device.events.pool) == [0, 1, 0]
    assert [found.pool for found in device.segments] == [1, 2]


def test_cards_without_events_and_segments_are_left_out() -> None:
    state = {"device_traces": [[], [event("alloc")], []], "segments": [segment(device=3)]}
    recording = from_snapshot(state)
    assert [(found.device, len(found.events), len(found.segments or ())) for found in recording.devices] == [
        (1, 1, 0),
        (3, 0, 1),
    ]


def test_a_list_of_segments_alone_is_a_state_without_events() -> None:
    device = one(from_snapshot([segment(block(2 * MIB))]))
    assert len(device.events) == 0
    assert device.segments == (
        Segment(BASE, 2 * MIB, 0, True, False, 0, (Block(BASE, 2 * MIB, 2 * MIB, "active_allocated"),)),
    )
    assert not device.starts_empty


def test_blocks_of_early_versions_have_a_history_instead_of_frames() -> None:
    held = {"size": 1024, "state": "active_allocated", "history": [{"addr": BASE, "real_size": 600, "frames": STACK}]}
    waiting = {"size": 512, "state": "active_pending_free"}
    recording = from_snapshot([segment(held, waiting)])
    first, second = one(recording).segments[0].blocks
    assert first[:4] == (BASE, 1024, 600, "active_allocated")
    assert recording.stacks.frames(first.stack)[0].name == "forward"
    assert second == Block(BASE + 1024, 512, 512, "active_awaiting_free", EMPTY)


@pytest.mark.parametrize(
    ("events", "state", "starts_empty"),
    [
        ([event("segment_alloc", size=2 * MIB)], [segment()], True),
        ([event("segment_alloc", size=2 * MIB), event("segment_free", size=2 * MIB)], [], True),
        ([event("alloc")], [segment()], False),
        ([event("segment_free", size=2 * MIB)], [], False),
        ([event("segment_alloc", size=2 * MIB)], [], False),  # of two runs
        (
            [event("segment_map", size=4 * MIB), event("segment_unmap", size=2 * MIB)],
            [segment(is_expandable=True)],
            True,
        ),
        ([event("segment_map", size=MIB)], [segment(is_expandable=True)], False),
        ([event("segment_map", size=4 * MIB)], [segment(is_expandable=True)], False),
        ([event("segment_alloc", size=2 * MIB)], None, False),  # no state, so nothing is known of before
    ],
)
def test_a_trace_starts_empty_if_nothing_is_left_going_backwards(
    events: list[Any], state: list[Any] | None, starts_empty: bool
) -> None:
    given = {"device_traces": [events]} | ({} if state is None else {"segments": state})
    assert one(from_snapshot(given)).starts_empty is starts_empty


def test_a_time_before_the_first_events_is_its_time() -> None:
    assert list(trace_of(event("alloc", time_us=7), event("alloc", time_us=5)).time_us) == [0, 0]


def test_text_that_cannot_be_printed_is_replaced() -> None:
    recording = from_snapshot({"device_traces": [[event("alloc", frames=[{**MAIN, "name": "a\ud800"}])]]})
    assert recording.stacks.all_frames[0].name == "a?"


def page(content: bytes) -> bytes:
    """As torch.cuda._memory_viz.trace_plot writes it."""
    content += b"\0" * (3 - len(content) % 3)
    files = json.dumps([{"name": "snapshot.pickle", "base64": base64.b64encode(content).decode()}])
    return f"""
<!DOCTYPE html>
<html>
<head>
</head>
<body>
<script type="module">
import {{add_local_files}} from "https://cdn.jsdelivr.net/gh/pytorch/pytorch@main/torch/utils/viz/MemoryViz.js"
const local_files = {files}
add_local_files(local_files, 'Active Memory Timeline')
</script>
</body>
""".encode()


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize(
    "form", [bytes, gzip.compress, lzma.compress, page, lambda content: gzip.compress(page(content))]
)
def test_every_form_opens_whatever_its_name(form: Any, protocol: int, tmp_path: Path) -> None:
    path = tmp_path / "holiday.jpg"
    path.write_bytes(form(pickle.dumps(snapshot(), protocol)))
    assert list(one(open_recording(path)).events.size) == [2 * MIB, 500, 1024, 1024, 1024]


def truths() -> list[Path]:
    return sorted(TRUTH.glob("*.pickle.xz"))


def _index() -> dict[tuple[str, int], dict[str, str]]:
    with (TRUTH / "index.csv").open(newline="") as file:
        return {(row["file"], int(row["device"])): row for row in csv.DictReader(file)}


@pytest.mark.truth
@pytest.mark.skipif(not TRUTH.exists(), reason="the recordings of real cards do not lie beside this checkout")
def test_recordings_of_real_cards_open_and_replay_to_the_published_peaks() -> None:
    index = _index()
    assert truths()
    for path in truths():
        recording = open_recording(path)
        for device in recording.devices:
            row = index.pop((path.name, device.device))
            assert len(device.events) == int(row["events"]), path.name
            assert str(device.starts_empty) == row["starts_empty"], path.name
            assert len(device.segments or ()) == int(row["segments_at_end"]), path.name
            if path.name == NOT_OF_ONE_RUN:
                continue
            found = replay(device, recording.about.get("allocator_settings"))
            allocated = max([found.before_allocated_bytes, *found.allocated_bytes])
            allocated -= UNSPLIT_BEFORE_BYTES.get(path.name, 0)
            reserved = max([found.before_reserved_bytes, *found.reserved_bytes])
            assert f"{round(allocated / MIB, 3)}" == row["peak_allocated_mib"], path.name
            assert f"{round(reserved / MIB, 3)}" == row["peak_reserved_mib"], path.name
            if row["replay_end_error_bytes"]:
                assert found.end_error_bytes == int(row["replay_end_error_bytes"]), path.name
    left = {name for name, _ in index}
    assert not left & {path.name for path in truths()}


@pytest.mark.truth
@pytest.mark.skipif(not TRUTH.exists(), reason="the recordings of real cards do not lie beside this checkout")
def test_memory_timelines_of_the_profiler_are_told_apart() -> None:
    paths = list(TRUTH.glob("timeline_*.raw.json.gz"))
    assert paths
    for path in paths:
        with pytest.raises(UsageError, match=r"is a memory timeline of torch\.profiler, which has sizes by category"):
            open_recording(path)


def test_allocator_settings_that_are_no_dictionary_are_left_out() -> None:
    taken = {"action": "alloc", "addr": 4096, "size": 512, "stream": 0, "frames": []}
    recording = from_snapshot({"segments": [], "device_traces": [[taken]], "allocator_settings": ["x"]})
    assert "allocator_settings" not in recording.about

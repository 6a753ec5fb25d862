"""Recordings written back as snapshots open in PyTorch's own tools, and say the same when they are read again."""

from __future__ import annotations

import dataclasses
import pickle
import pickletools
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dryfit.errors import UsageError
from dryfit.recording.final_state import final_segments
from dryfit.recording.model import Block, DeviceTrace, Recording
from dryfit.recording.opening import open_recording
from dryfit.recording.replay import replay
from dryfit.recording.snapshot import from_snapshot
from dryfit.recording.stacks import MODULE_FILE, Frame
from dryfit.recording.to_torch import save_snapshot, to_snapshot

from .snapshots import BASE, MIB, STACK, TRUTH, block, event, segment, snapshot

torch_viz = pytest.importorskip("torch.cuda._memory_viz")


def many_kinds() -> dict[str, Any]:
    """A snapshot with everything that a snapshot can have."""
    given = snapshot()
    given["device_traces"][0] += [
        event("alloc", BASE + 512, 600, frames=STACK, pool_id=(0, 1)),
        event("free_requested", BASE + 512, 600),
        {"action": "oom", "device_free": 3 * MIB, "size": 40 << 30, "stream": 7, "frames": STACK},
        event("annotate", user_metadata="weights"),
        event("snapshot", 0, 0),
    ]
    given["device_traces"] += [[], [event("segment_map", 1 << 40, 20 * MIB)]]
    given["segments"] = [
        segment(
            block(512, frames=STACK, address=BASE),
            block(1024, "active_pending_free", requested_size=600, address=BASE + 512),
        ),
        segment(address=1 << 40, device=2, total_size=20 * MIB, is_expandable=True, segment_type="large"),
    ]
    return given


def events_of(recording: Recording) -> list[list[tuple[Any, ...]]]:
    stacks = recording.stacks
    return [
        list(
            zip(
                events.kind, events.address, events.size, events.stream, events.time_us,
                [device.pools[pool] for pool in events.pool], [stacks.frames(stack) for stack in events.stack],
                strict=True,
            )
        )
        for device in recording.devices
        for events in [device.events]
    ]  # fmt: skip


def peaks(device: DeviceTrace, recording: Recording) -> tuple[Any, ...]:
    found = replay(device, recording.about.get("allocator_settings"))
    return max(found.allocated_bytes, default=0), max(found.reserved_bytes, default=0), found.end_error_bytes


def held(device: DeviceTrace) -> list[Any]:
    """Without free blocks, which fill the gaps in what is written."""
    return [
        found._replace(blocks=tuple(b._replace(stack=0) for b in found.blocks if b.state != "inactive"))
        for found in device.segments or ()
    ]


def assert_the_same(recording: Recording, again: Recording) -> None:
    assert events_of(again) == events_of(recording)
    for device, other in zip(recording.devices, again.devices, strict=True):
        assert (other.device, other.starts_empty) == (device.device, device.starts_empty)
        assert held(other) == held(device)
        assert peaks(other, again) == peaks(device, recording)
    assert again.about.get("allocator_settings") == recording.about.get("allocator_settings")


def test_what_is_written_reads_as_the_same(tmp_path: Path) -> None:
    recording = from_snapshot(many_kinds())
    save_snapshot(recording, tmp_path / "back.pickle")
    assert_the_same(recording, open_recording(tmp_path / "back.pickle"))


def test_the_keys_are_those_that_pytorch_writes() -> None:
    written = to_snapshot(from_snapshot(many_kinds()))
    assert list(written) == ["segments", "device_traces", "allocator_settings", "external_annotations"]
    assert [len(trace) for trace in written["device_traces"]] == [10, 0, 1]
    first, oom = written["device_traces"][0][0], written["device_traces"][0][7]
    assert {"action", "addr", "size", "stream", "time_us", "frames", "compile_context", "user_metadata"} <= set(first)
    assert (oom["device_free"], "addr" in oom) == (3 * MIB, False)
    assert [b["state"] for b in written["segments"][0]["blocks"]] == [
        "active_allocated", "active_pending_free", "inactive",
    ]  # fmt: skip
    for found in written["segments"]:
        assert sum(b["size"] for b in found["blocks"]) == found["total_size"], "the viewer adds sizes up"
    first = written["segments"][0]
    assert (first["allocated_size"], first["active_size"], first["requested_size"]) == (512, 1536, 512)


def test_calls_of_modules_come_back_as_such() -> None:
    recording = from_snapshot(snapshot(), frame_of=lambda *frame: Frame(MODULE_FILE, "blocks.0", 0))
    again = from_snapshot(to_snapshot(recording))
    assert [frame.is_module for frame in again.stacks.all_frames] == [True]


def test_the_pickle_has_only_what_the_viewer_reads(tmp_path: Path) -> None:
    """pytorch.org/memory_viz has an unpickler of its own, which knows these and protocols 2 to 4."""
    save_snapshot(from_snapshot(many_kinds()), tmp_path / "back.pickle")
    content = (tmp_path / "back.pickle").read_bytes()
    known = {
        "APPENDS", "BINGET", "BININT", "BININT1", "BININT2", "EMPTY_DICT", "EMPTY_LIST", "FRAME", "LONG1",
        "LONG_BINGET", "MARK", "MEMOIZE", "PROTO", "SETITEMS", "SHORT_BINUNICODE", "STOP", "TUPLE2",
        "APPEND", "NEWFALSE", "BINPUT", "BINUNICODE", "EMPTY_TUPLE", "NEWTRUE", "NONE", "BINFLOAT",
        "TUPLE", "TUPLE1", "TUPLE3", "LONG_BINPUT", "LIST", "DICT", "SETITEM",
    }  # fmt: skip
    assert {instruction.name for instruction, _, _ in pickletools.genops(content)} <= known
    assert content[:2] == b"\x80\x04"


@pytest.mark.parametrize("tool", ["trace_plot", "segment_plot", "segments", "memory", "segsum", "trace"])
def test_pytorchs_own_tools_open_it(tool: str, tmp_path: Path) -> None:
    save_snapshot(from_snapshot(many_kinds()), tmp_path / "back.pickle")
    written = pickle.loads((tmp_path / "back.pickle").read_bytes())
    call = getattr(torch_viz, tool)
    text = call(written, format_flamegraph=str) if tool in ("segments", "memory") else call(written)
    expected = {"segments": "forward", "memory": "forward", "segsum": "segments: 2", "trace": "OutOfMemoryError"}
    assert expected.get(tool, "base64") in text


def test_a_page_that_pytorch_makes_of_it_opens(tmp_path: Path) -> None:
    recording = from_snapshot(many_kinds())
    (tmp_path / "page.html").write_text(torch_viz.trace_plot(to_snapshot(recording)))
    assert_the_same(recording, open_recording(tmp_path / "page.html"))


def test_a_final_state_that_is_not_known_is_worked_out() -> None:
    given = many_kinds()
    known = from_snapshot(given)
    del given["segments"]
    unknown = from_snapshot(given)
    assert unknown.devices[0].segments is None
    found = final_segments(dataclasses.replace(unknown.devices[0], starts_empty=True))
    assert [s._replace(blocks=()) for s in found] == [s._replace(blocks=()) for s in known.devices[0].segments or ()]
    assert [b[:4] for b in found[0].blocks] == [
        (BASE, 512, 500, "active_allocated"),
        (BASE + 512, 1024, 600, "active_awaiting_free"),
    ]
    assert [s.total_size for s in final_segments(unknown.devices[1])] == [20 * MIB]
    assert len(to_snapshot(unknown)["segments"]) == 2


def test_pieces_of_expandable_segments_are_joined_and_cut() -> None:
    trace = [
        event("segment_map", BASE, 4 * MIB),
        event("segment_map", BASE + 4 * MIB, 4 * MIB),
        event("segment_map", BASE + 8 * MIB, 4 * MIB, stream=1),
        event("segment_unmap", BASE + 2 * MIB, 4 * MIB),
        event("alloc", 1 << 40, 700),
    ]
    (device,) = from_snapshot({"device_traces": [trace]}).devices
    found = [(s.address, s.total_size, s.is_expandable, len(s.blocks)) for s in final_segments(device)]
    assert found == [
        (1 << 40, 1024, False, 1),
        (BASE, 2 * MIB, True, 0),
        (BASE + 6 * MIB, 2 * MIB, True, 0),
        (BASE + 8 * MIB, 4 * MIB, True, 0),
    ]


def test_a_segment_is_small_as_it_was_made() -> None:
    """Neighbouring pieces of an expandable segment of the small pool are together larger than any small segment."""
    trace = [
        event("segment_map", BASE, 2 * MIB),
        event("segment_map", BASE + 2 * MIB, 2 * MIB),
        event("segment_map", BASE + 64 * MIB, 20 * MIB),
        event("segment_alloc", 1 << 40, 2 * MIB),
    ]
    (device,) = from_snapshot({"device_traces": [trace]}).devices
    assert [(s.total_size, s.is_small) for s in final_segments(device)] == [
        (2 * MIB, True),
        (4 * MIB, True),
        (20 * MIB, False),
    ]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30), st.integers(1, 9)), max_size=30))
def test_what_stays_mapped_is_what_a_set_of_pages_says(changes: list[tuple[bool, int, int]]) -> None:
    pages: set[int] = set()
    trace = []
    for is_mapped, first, count in changes:
        changed = set(range(first, first + count))
        if is_mapped and pages & changed:
            continue  # no allocator maps a page twice
        pages = pages | changed if is_mapped else pages - changed
        trace.append(event("segment_map" if is_mapped else "segment_unmap", BASE + first * MIB, count * MIB))
    devices = from_snapshot({"device_traces": [trace]}).devices
    found = [segment for device in devices for segment in final_segments(device)]
    left = [(s.address - BASE) // MIB + page for s in found for page in range(s.total_size // MIB)]
    assert sorted(left) == sorted(pages)


def test_many_unmappings_take_no_time() -> None:
    pages = 50_000
    trace = [event("segment_map", BASE + 4 * page * MIB, 2 * MIB) for page in range(pages)]
    trace += [event("segment_unmap", BASE + 4 * page * MIB, 2 * MIB) for page in range(pages)]
    (device,) = from_snapshot({"device_traces": [trace]}).devices
    began = time.process_time()
    assert final_segments(device) == ()
    assert time.process_time() - began < 5


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"The snapshot could not be saved as .*: Is a directory; choose another path"):
        save_snapshot(from_snapshot(snapshot()), tmp_path)


@pytest.mark.truth
@pytest.mark.skipif(not TRUTH.exists(), reason="the recordings of real cards do not lie beside this checkout")
@pytest.mark.parametrize(
    "name",
    [
        "codelocation_3gpu_expandable_oom",
        "niu_small4L_train_ctx100_fp32",
        "selectn_llama_10streams",
        "yiyi_state_at_oom_no_trace",
    ],
)
def test_recordings_of_real_cards_come_back_the_same(name: str, tmp_path: Path) -> None:
    recording = open_recording(TRUTH / f"{name}.pickle.xz")
    save_snapshot(recording, tmp_path / "back.pickle")
    assert_the_same(recording, open_recording(tmp_path / "back.pickle"))
    for device in recording.devices:
        if device.starts_empty:
            settings = recording.about.get("allocator_settings")
            without = dataclasses.replace(device, segments=None)
            worked_out = [s._replace(blocks=strip(s.blocks), is_small=False) for s in final_segments(without, settings)]
            stated = [s._replace(blocks=strip(s.blocks), is_small=False) for s in held(device)]
            assert worked_out == stated


def strip(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    return tuple(found._replace(stack=0) for found in blocks)

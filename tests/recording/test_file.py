"""Recordings as files: what is saved comes back, and what anyone else may put there ends in one sentence."""

from __future__ import annotations

import json
import os
import shutil
import struct
import zipfile
from array import array
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dryfit.errors import UsageError
from dryfit.recording import columns, tables
from dryfit.recording.file import FIRST_BYTES, is_recording, load, save
from dryfit.recording.model import (
    ALLOC,
    FREE_COMPLETED,
    KINDS,
    OWNERS,
    PARAMETER,
    PHASES,
    Block,
    DeviceTrace,
    Events,
    Label,
    Mark,
    ModuleOutput,
    Recording,
    Segment,
)
from dryfit.recording.stacks import EMPTY, Frame, Stacks

TYPECODES = {"kind": "B", "address": "Q", "size": "Q", "stream": "Q", "pool": "H", "stack": "I", "time_us": "Q"}
U64, U32 = st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 32) - 1)
I64 = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(st.characters(), max_size=8)  # surrogates too, as of file names that are not UTF-8
SHAPE = st.none() | st.lists(I64, max_size=3).map(tuple)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
FILE_FUZZ = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def recordings(draw: st.DrawFn) -> Recording:
    stacks = Stacks()
    for frames in draw(st.lists(st.lists(st.builds(Frame, TEXT, TEXT, I64), max_size=3), max_size=4)):
        stacks.add(frames)
    stack = st.integers(0, len(stacks) - 1)
    devices = []
    for _ in range(draw(st.integers(0, 2))):
        pools = tuple(draw(st.lists(st.tuples(U64, U64), min_size=1, max_size=3)))
        pool = st.integers(0, len(pools) - 1)
        columns_of = {"kind": st.integers(0, len(KINDS) - 1), "pool": pool, "stack": stack}
        count = draw(st.integers(0, 12))
        events = Events()
        for name in TYPECODES:
            value = columns_of.get(name, U64)
            getattr(events, name).extend(draw(st.lists(value, min_size=count, max_size=count)))
        label = st.builds(
            Label, st.integers(0, max(count - 1, 0)), st.sampled_from(OWNERS), TEXT, TEXT, SHAPE
        )  # fmt: skip
        state = st.sampled_from(["active_allocated", "active_awaiting_free", "inactive"])
        blocks = st.lists(st.builds(Block, U64, U64, U64, state, stack), max_size=3).map(tuple)
        segment = st.builds(Segment, U64, U64, U64, st.booleans(), st.booleans(), pool, blocks)
        devices.append(
            DeviceTrace(
                device=draw(st.integers(0, 7)),
                events=events,
                segments=draw(st.none() | st.lists(segment, max_size=3).map(tuple)),
                marks=tuple(
                    draw(st.lists(st.builds(Mark, st.integers(0, count), I64, st.sampled_from(PHASES), st.booleans())))
                ),
                labels=tuple(draw(st.lists(label, max_size=3))) if count else (),
                pools=pools,
                starts_empty=draw(st.booleans()),
                dropped_events=draw(st.integers(0, 1 << 40)),
            )
        )
    return Recording(
        source=draw(st.sampled_from(["rehearsal", "snapshot"])),
        devices=tuple({trace.device: trace for trace in devices}.values()),
        stacks=stacks,
        modules=tuple(draw(st.lists(st.builds(ModuleOutput, TEXT, TEXT, TEXT, SHAPE), max_size=3))),
        workspaces=tuple(draw(st.lists(st.tuples(U64, U64), max_size=2))),
        about=draw(st.dictionaries(TEXT, JSON, max_size=3)),
    )


def values_of(recording: Recording) -> dict[str, Any]:
    """Everything in a recording, as values that compare; reads every column of one that comes from a file."""
    devices = []
    for trace in recording.devices:
        events = {name: getattr(trace.events, name) for name in TYPECODES}
        assert {name: column.typecode for name, column in events.items()} == TYPECODES
        assert all(len(column) == len(trace.events) for column in events.values())
        names = ("device", "segments", "marks", "labels", "pools", "starts_empty", "dropped_events")
        devices.append({"events": events, **{name: getattr(trace, name) for name in names}})
    stacks = recording.stacks
    return {
        "source": recording.source,
        "devices": devices,
        "stacks": [stacks.frames(stack) for stack in range(len(stacks))],
        "columns": (stacks.all_frames, stacks.frame_of, stacks.caller_of),
        "modules": recording.modules,
        "workspaces": recording.workspaces,
        "about": recording.about,
    }


def small_recording() -> Recording:
    stacks = Stacks()
    events = Events()
    main = stacks.add([Frame("model.py", "forward", 3), Frame("train.py", "main", 7)])
    for kind in (ALLOC, FREE_COMPLETED) * 20:
        for name, value in zip(TYPECODES, (kind, 1 << 40, 512, 0, 0, main, 10 * len(events)), strict=True):
            getattr(events, name).append(value)
    trace = DeviceTrace(
        device=0,
        events=events,
        marks=(Mark(0, 1, "forward"),),
        labels=(Label(0, PARAMETER, "weight", "float32", (8, 16)),),
        segments=(Segment(1 << 40, 1 << 21, 0, True, False, 0, (Block(1 << 40, 512, 512, "inactive", main),)),),
    )
    return Recording(source="rehearsal", devices=(trace,), stacks=stacks, about={"program": ["train.py"]})


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "run.dryfit"
    save(small_recording(), path)
    return path


def rewritten(
    path: Path,
    members: dict[str, bytes | None] | None = None,
    header: Callable[[dict[str, Any]], None] | None = None,
    compression: int = zipfile.ZIP_DEFLATED,
) -> Path:
    """The file with other members or another header, its checksums right."""
    with zipfile.ZipFile(path) as archive:
        contents: dict[str, bytes | None] = {name: archive.read(name) for name in archive.namelist()}
    if header:
        described = json.loads(contents[columns.HEADER] or b"")
        header(described)
        contents[columns.HEADER] = json.dumps(described).encode()
    contents |= members or {}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in contents.items():
            if content is not None:
                archive.writestr(name, content)
    return path


def refusal(path: Path) -> str:
    """The sentence that a file is refused with, once everything in it is asked for."""
    with pytest.raises(UsageError) as refused:
        values_of(load(path))
    text = str(refused.value)
    assert "\n" not in text
    assert text.endswith(".")
    assert str(path) in text
    return text


@given(recordings())
@settings(FILE_FUZZ)
def test_what_is_saved_comes_back(tmp_path: Path, recording: Recording) -> None:
    path = tmp_path / "any.dryfit"
    save(recording, path)
    loaded = load(path)
    assert values_of(loaded) == values_of(recording)
    assert is_recording(path)
    first = path.read_bytes()
    save(loaded, path)  # over the very file that it is read from
    assert path.read_bytes() == first
    assert list(tmp_path.iterdir()) == [path]


def test_equal_recordings_make_equal_files(saved: Path) -> None:
    other = saved.with_name("other.dryfit")
    save(replace(small_recording(), about=dict(reversed(small_recording().about.items()))), other)
    assert other.read_bytes() == saved.read_bytes()


def test_stacks_from_a_file_can_be_added_to(saved: Path) -> None:
    stacks = load(saved).stacks
    frames = [Frame("model.py", "forward", 3), Frame("train.py", "main", 7)]
    assert stacks.add(frames) == small_recording().devices[0].events.stack[0]
    new = stacks.add([Frame("loss.py", "loss", 1), *frames])
    assert new == len(stacks) - 1
    assert stacks.frames(new)[1:] == frames
    assert stacks.frames(EMPTY) == []


def test_a_column_is_read_when_it_is_first_used(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    original = columns.Columns.column

    def counted(self: columns.Columns, name: str, typecode: str) -> array[int]:
        read.append(name)
        return original(self, name, typecode)

    monkeypatch.setattr(columns.Columns, "column", counted)
    recording = load(saved)
    assert len(recording.devices[0].events) == 40
    assert len(recording.stacks) == 3
    assert not [name for name in read if "events" in name or name.startswith(("stacks", "frames"))]
    for _ in range(2):
        assert recording.devices[0].events.size[0] == 512
    assert [name for name in read if "events" in name] == ["devices/0/events/size"]


def test_numbers_are_little_endian_and_any_program_can_read_them(saved: Path) -> None:
    with zipfile.ZipFile(saved) as archive:
        assert archive.testzip() is None
        sizes = archive.read("devices/0/events/size")
        times = archive.read("devices/0/events/time_us")
        declared = json.loads(archive.read("dryfit-recording.json"))["columns"]
    assert struct.unpack("<40Q", sizes) == (512,) * 40
    assert struct.unpack("<40q", times) == (0, *[10] * 39)
    assert declared["devices/0/events/size"] == {"type": "u64", "count": 40, "differences": False}
    assert declared["devices/0/events/time_us"] == {"type": "u64", "count": 40, "differences": True}


def test_the_first_bytes_tell_a_recording(saved: Path, tmp_path: Path) -> None:
    assert is_recording(saved.read_bytes()[:FIRST_BYTES])
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("weights", b"PK\x03\x04")
    assert not is_recording(other)
    assert not is_recording(b"")
    assert not is_recording(tmp_path / "missing")
    assert not is_recording(tmp_path)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "run.dryfit"
    with pytest.raises(UsageError) as refused:
        save(small_recording(), path)
    assert (
        str(refused.value)
        == f"The recording could not be saved as {path}: No such file or directory; choose another path."
    )
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match="Is a directory"):
        save(small_recording(), tmp_path / "folder")
    assert [found.name for found in tmp_path.iterdir()] == ["folder"]


def test_a_number_that_no_column_holds_is_not_saved(tmp_path: Path) -> None:
    recording = replace(small_recording(), workspaces=((1 << 64, 1),))
    with pytest.raises(UsageError, match=r"could not be saved as .*: a number is out of range"):
        save(recording, tmp_path / "run.dryfit")
    assert not list(tmp_path.iterdir())


def test_a_table_longer_than_can_be_read_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MOST_ROWS", 1)
    recording = replace(small_recording(), workspaces=((1, 1),) * 2)
    with pytest.raises(UsageError, match="A recording holds at most 1 workspaces, and this one has 2; record fewer"):
        save(recording, tmp_path / "run.dryfit")
    monkeypatch.undo()
    monkeypatch.setattr(columns, "MOST_ROWS", 39)
    with pytest.raises(
        UsageError, match="at most 39 numbers in a column, and devices/0/events/kind has 40 here; record"
    ):
        save(small_recording(), tmp_path / "run.dryfit")


def test_a_missing_file_and_other_files_are_told_apart_from_damage(tmp_path: Path) -> None:
    assert refusal(tmp_path / "missing") == (
        f"The recording {tmp_path / 'missing'} cannot be opened: No such file or directory."
    )
    assert "cannot be opened: Is a directory" in refusal(tmp_path)
    text = tmp_path / "train.py"
    text.write_text("print()\n")
    assert refusal(text) == (f"{text} is not a recording of dryfit's; `dryfit run --record FILE` makes one.")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "is not a recording" in refusal(pipe)


def test_a_newer_format_asks_for_a_newer_dryfit(saved: Path) -> None:
    path = rewritten(saved, header=lambda header: header.update(version=2))
    assert refusal(path) == (
        f"The recording {path} was written by a newer dryfit: its format is 2, this dryfit reads up to 1. "
        "Install a newer dryfit to open it."
    )


def numbers(typecode: str, *values: int) -> bytes:
    return array(typecode, values).tobytes()


def declare(name: str, **changes: object) -> Callable[[dict[str, Any]], None]:
    return lambda header: header["columns"][name].update(changes)


def about(**values: object) -> Callable[[dict[str, Any]], None]:
    return lambda header: header["about"].update(values)


@pytest.mark.parametrize(
    ("members", "header", "reason"),
    [
        ({"devices/0/events/size": None}, None, "devices/0/events/size: it is missing"),
        ({"devices/0/events/size": b"\0" * 319}, None, "devices/0/events/size: 319 bytes instead of 320"),
        ({"devices/0/events/kind": b"\x0a" * 40}, None, "devices/0/events/kind has 10, but there are 10"),
        ({"devices/0/events/pool": numbers("H", *[1] * 40)}, None, "devices/0/events/pool has 1, but there are 1"),
        ({"devices/0/events/stack": numbers("I", *[3] * 40)}, None, "devices/0/events/stack has 3, but there are 3"),
        ({"devices/0/events/time_us": numbers("q", *[-1] * 40)}, None, "devices/0/events/time_us: "),
        ({"devices/0/events/time_us": numbers("q", *[(1 << 63) - 1] * 40)}, None, "devices/0/events/time_us: "),
        ({"devices/0/marks/event": numbers("Q", 41)}, None, "devices/0/marks/event has 41, but there are 41"),
        ({"devices/0/labels/event": numbers("Q", 40)}, None, "devices/0/labels/event has 40, but there are 40"),
        ({"devices/0/labels/owner": numbers("I", 0)}, None, "devices/0/labels has an owner that is none of parameter"),
        ({"devices/0/labels/name": numbers("I", 99)}, None, "devices/0/labels/name has 99, but there are "),
        ({"devices/0/labels/shape": numbers("I", 0)}, None, "devices/0/labels/shape: invalid literal"),
        ({"devices/0/blocks/state": numbers("I", 0)}, None, "devices/0/blocks has a state that is none of active_"),
        ({"devices/0/blocks/stack": numbers("I", 3)}, None, "devices/0/blocks/stack has 3, but there are 3"),
        ({"devices/0/segments/pool": numbers("H", 1)}, None, "devices/0/segments/pool has 1, but there are 1"),
        ({"devices/0/segments/blocks": numbers("I", 2)}, None, "devices/0/segments do not have the 1 blocks"),
        ({"stacks/caller": numbers("I", 0, 1, 1)}, None, "stacks/caller has a stack that is called by a later one"),
        ({"stacks/frame": numbers("I", 0, 2, 0)}, None, "stacks/frame has 2, but there are 2"),
        ({"texts/bytes": b"\xff" * 60}, None, "texts/bytes: "),
        ({columns.HEADER: b"{"}, None, ""),
        ({columns.HEADER: b"[" * 100_000}, None, ""),
        ({columns.HEADER: b"[]"}, None, "its header is not a recording's"),
        (None, lambda header: header.update(version="1"), "its version is '1'"),
        (None, lambda header: header.update(version=True), "its version is True"),
        (None, lambda header: header.update(columns=[]), "its header names no columns"),
        (None, lambda header: header.update(about=[]), "its header does not say what was recorded"),
        (None, lambda header: header.update(devices=7), "its header does not say which devices were recorded"),
        (None, lambda header: header.update(devices=[7]), "its header does not describe device 0"),
        (None, lambda header: header["devices"][0].update(dropped_events="0"), "does not describe device 0"),
        (None, lambda header: header["devices"].append(header["devices"][0]), "devices/1/pools/first is missing"),
        (None, lambda header: header["devices"][0].update(device=1 << 40), "device 0 with numbers that can be"),
        (None, lambda header: header["devices"][0].update(device=-1), "device 0 with numbers that can be"),
        (None, lambda header: header["devices"][0].update(dropped_events=-1), "device 0 with numbers that can be"),
        (None, about(program=3), "its header has no program as dryfit writes it"),
        (None, about(card="an H100"), "its header has no card as dryfit writes it"),
        (None, about(card={"name": "x", "total_bytes": "24 GiB"}), "its header has no total_bytes of the card as"),
        (None, about(allocator_settings=[]), "its header has no allocator_settings as dryfit writes it"),
        (None, about(lost_events=1), "its header has no lost_events as dryfit writes it"),
        (None, about(peak_used_bytes=True), "its header has no peak_used_bytes as dryfit writes it"),
        (None, declare("devices/0/events/size", count=41), "devices/0/events has columns of different lengths"),
        (None, declare("devices/0/events/size", count=1 << 60), "size is declared as 1152921504606846976 numbers"),
        (None, declare("devices/0/events/size", count=-1), "is declared as -1 numbers of type 'u64'"),
        (None, declare("devices/0/events/size", count=40.0), "is declared as 40.0 numbers"),
        (None, declare("devices/0/events/size", type="u7"), "is declared as 40 numbers of type 'u7'"),
        (None, declare("devices/0/events/size", type=[]), "is declared as 40 numbers of type []"),
        (None, declare("devices/0/events/size", type="i64"), "devices/0/events/size is of type i64 instead of u64"),
        (None, declare("devices/0/marks/step", count=0), "devices/0/marks/step: 8 bytes instead of 0"),
        (None, declare("workspaces/size", count=5_000_000), "workspaces/size has more than 4194304 rows"),
        (None, declare("stacks/frame", count=0), "stacks has columns of different lengths, or none at all"),
        (None, declare("texts/length", count=0), "texts/length: "),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_damaged_file_is_named(
    saved: Path, members: dict[str, bytes | None] | None, header: Callable[[dict[str, Any]], None] | None, reason: str
) -> None:
    path = rewritten(saved, members, header)
    text = refusal(path)
    assert text.startswith(f"The recording {path} is damaged (")
    assert text.endswith("); record it again, or take another copy of it.")
    assert reason in text


def test_no_device_is_there_twice(tmp_path: Path) -> None:
    recording = small_recording()
    other = replace(recording.devices[0], device=1)
    path = tmp_path / "run.dryfit"
    save(replace(recording, devices=(*recording.devices, other)), path)
    rewritten(path, header=lambda header: header["devices"][1].update(device=0))
    assert "its header has a device twice" in refusal(path)


def test_columns_of_a_table_are_of_one_length(saved: Path) -> None:
    path = rewritten(saved, {"devices/0/marks/autocast": b""}, declare("devices/0/marks/autocast", count=0))
    assert "devices/0/marks has columns of different lengths" in refusal(path)


@pytest.mark.parametrize("compression", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_other_compressions_are_refused(saved: Path, compression: int) -> None:
    assert "it is not deflated" in refusal(rewritten(saved, compression=compression))


def test_a_member_cannot_be_larger_than_its_bytes_can_become(saved: Path) -> None:
    def grow(header: dict[str, Any]) -> None:
        for name in TYPECODES:
            header["columns"][f"devices/0/events/{name}"]["count"] = 1 << 26

    rewritten(saved, header=grow)
    content = bytearray(saved.read_bytes())
    # The sizes that the directory declares: 22 to 26 bytes after the signature of an entry, its name 46 bytes after.
    place = content.index(b"devices/0/events/size", content.index(b"PK\x01\x02")) - 46
    struct.pack_into("<L", content, place + 24, 1 << 29)
    saved.write_bytes(content)
    with pytest.raises(UsageError, match=r"devices/0/events/size: 536870912 bytes cannot come of \d+"):
        load(saved).devices[0].events.size  # noqa: B018


def test_a_flipped_bit_is_found_by_the_checksum(saved: Path) -> None:
    content = bytearray(rewritten(saved, compression=zipfile.ZIP_STORED).read_bytes())
    place = content.index(struct.pack("<3Q", 512, 512, 512))
    content[place] ^= 1
    saved.write_bytes(content)
    assert "devices/0/events/size: Bad CRC-32" in refusal(saved)


def test_a_large_directory_or_header_is_refused_unread(saved: Path) -> None:
    content = bytearray(saved.read_bytes())
    struct.pack_into("<L", content, len(content) - 10, 1 << 30)
    saved.write_bytes(content)
    assert "its directory is larger than any recording's" in refusal(saved)
    save(small_recording(), saved)
    assert "its header has 20000000 bytes" in refusal(rewritten(saved, {columns.HEADER: b" " * 20_000_000}))


def test_a_file_larger_than_any_recording_is_refused_unread(saved: Path) -> None:
    with saved.open("r+b") as file:
        file.truncate(10 << 30)  # sparse
    assert "10737418240 bytes are more than any recording has" in refusal(saved)


def test_every_truncation_is_refused(saved: Path) -> None:
    content = saved.read_bytes()
    for length in range(0, len(content), 7):
        saved.write_bytes(content[:length])
        refusal(saved)


@given(st.data())
@settings(FILE_FUZZ)
def test_flipped_bytes_change_nothing_or_end_in_a_sentence(saved: Path, data: st.DataObject) -> None:
    path = saved.with_name("flipped.dryfit")
    shutil.copy(saved, path)
    if data.draw(st.booleans(), label="with right checksums"):
        with zipfile.ZipFile(path) as archive:
            damaged = data.draw(st.sampled_from([file.filename for file in archive.infolist() if file.file_size]))
            member = bytearray(archive.read(damaged))
        member[data.draw(st.integers(0, len(member) - 1))] = data.draw(st.integers(0, 255))
        rewritten(path, {damaged: bytes(member)})
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        values_of(load(path))
    except UsageError as error:
        assert str(path) in str(error)
        assert "\n" not in str(error)


@given(st.binary(max_size=200), st.booleans())
@settings(FILE_FUZZ)
def test_any_bytes_are_refused(saved: Path, noise: bytes, begins_well: bool) -> None:
    path = saved.with_name("noise.dryfit")
    path.write_bytes((saved.read_bytes()[:FIRST_BYTES] if begins_well else b"") + noise)
    refusal(path)

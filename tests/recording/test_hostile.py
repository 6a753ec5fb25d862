"""Whatever a file holds, opening it runs nothing, ends soon, and fails with one sentence."""

from __future__ import annotations

import array
import ctypes
import gc
import gzip
import io
import json
import lzma
import os
import pickle
import pickletools
import re
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dryfit.errors import UsageError
from dryfit.recording import containers, snapshot_segments, snapshot_stacks, unpickle
from dryfit.recording import snapshot as snapshot_module
from dryfit.recording.model import Recording
from dryfit.recording.opening import open_recording
from dryfit.recording.replay import replay
from dryfit.recording.snapshot import from_snapshot
from dryfit.recording.to_torch import to_snapshot
from dryfit.recording.unpickle import plain_values

from .snapshots import BASE, MAIN, MIB, block, event, segment, snapshot

PLAIN = pickle.dumps(snapshot(), 4)
QUICK = settings(deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def refusal(content: bytes, folder: Path) -> str:
    """The sentence that a file of this content is refused with."""
    path = folder / "given.pickle"
    path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        open_recording(path)
    return one_sentence(str(caught.value))


def one_sentence(text: str) -> str:
    assert text.endswith(".")
    assert "\n" not in text
    assert not re.search(r"[a-z)]\. [A-Z]", text), "two sentences"
    assert len(text) < 600
    return text


class Runs:
    """What a pickle can ask for: here a folder is made, and the test looks whether it is there."""

    def __init__(self, call: Callable[..., Any], *arguments: Any) -> None:
        self.call, self.arguments = call, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.call, self.arguments


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("inside", [lambda evil: evil, lambda evil: {**snapshot(), "extra": [evil]}])
def test_a_pickle_that_calls_something_is_refused_and_not_run(inside: Any, protocol: int, tmp_path: Path) -> None:
    made = tmp_path / "made"
    found = refusal(pickle.dumps(inside(Runs(os.mkdir, str(made))), protocol), tmp_path)
    assert not made.exists()
    if protocol in (2, 3):
        assert "its pickle asks for Python's 'posix.mkdir', at byte" in found
    elif protocol > 3:
        assert "its pickle asks for an object of a Python module, at byte" in found
    else:
        assert "is of no kind that dryfit knows" in found or "is text" in found
    if protocol > 1:
        assert "a snapshot holds only lists, dictionaries, text and numbers; nothing of it was run" in found


# All that import, call, build or fetch something, and those that make what no snapshot has.
REFUSED = {
    "GLOBAL": b"cos\nsystem\n",
    "STACK_GLOBAL": b"\x8c\x02os\x8c\x06system\x93",
    "INST": b"(ios\nsystem\n",
    "OBJ": b"(]o",
    "NEWOBJ": b"])\x81",
    "NEWOBJ_EX": b"])}\x92",
    "REDUCE": b"])R",
    "BUILD": b"]}b",
    "EXT1": b"\x82\x01",
    "EXT2": b"\x83\x01\x00",
    "EXT4": b"\x84\x01\x00\x00\x00",
    "PERSID": b"Pid\n",
    "BINPERSID": b"K\x01Q",
    "NEXT_BUFFER": b"\x97",
    "READONLY_BUFFER": b"]\x98",
    "BYTEARRAY8": b"\x96" + (1 << 60).to_bytes(8, "little"),
    "BINBYTES8": b"\x8e" + (1 << 60).to_bytes(8, "little"),
    "BINUNICODE8": b"\x8d" + (1 << 60).to_bytes(8, "little"),
    "LONG4": b"\x8b\xff\xff\xff\x7f",
    "LONG": b"L" + b"9" * 20 + b"L\n",
    "FROZENSET": b"(\x91",
    "ADDITEMS": b"\x8f(\x90",
    "TUPLE1": b"]\x85",
    "TUPLE3": b"]]]\x87",
    "TUPLE": b"(K\x01t",
    "DUP": b"]2",
    "POP": b"]0",
    "STRING": b"S'os'\n",
    "FLOAT": b"F1.0\n",
}


@pytest.mark.parametrize("name", REFUSED)
def test_every_instruction_that_a_snapshot_does_not_need_is_refused(name: str, tmp_path: Path) -> None:
    for before in (b"", b"}\x94", PLAIN[2:-1]):
        sentence = refusal(b"\x80\x04" + before + REFUSED[name] + b".", tmp_path)
        assert "is no memory snapshot: its pickle asks for" in sentence


def test_no_instruction_but_these_is_let_through() -> None:
    """Each alone: what is let through either works, or cannot be put together; nothing else."""
    needed = {
        "BINGET", "LONG_BINGET", "BINPUT", "LONG_BINPUT", "MEMOIZE", "MARK", "FRAME", "STOP", "NONE", "NEWTRUE",
        "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "SHORT_BINUNICODE", "BINUNICODE", "EMPTY_DICT",
        "EMPTY_LIST", "EMPTY_TUPLE", "APPEND", "APPENDS", "SETITEM", "SETITEMS",
    }  # fmt: skip
    let_through = set()
    for instruction in pickletools.opcodes:
        content = b"\x80\x04" + instruction.code.encode("latin-1") + bytes(20)
        try:
            plain_values(content, "It")
        except UsageError as error:
            if "its pickle asks for" in str(error):
                continue
        let_through.add(instruction.name)
    assert let_through == needed


def test_pickled_checkpoints_and_sets_are_refused(tmp_path: Path) -> None:
    for value in ({1, 2}, b"bytes", 1j, array.array("i", [1]), ((1, 2), 3), 1 << 80):
        assert "its pickle asks for" in refusal(pickle.dumps({"segments": value}), tmp_path)


def test_pairs_nested_a_million_deep_are_refused(tmp_path: Path) -> None:
    """Python would use up its stack on hashing them."""
    for nest in (b"\x85", b"\x94\x85", b"K\x00\x86"):
        assert "asks for" in refusal(b"\x80\x04})" + nest * 1_000_000 + b"K\x00s.", tmp_path)


def test_lists_nested_a_million_deep_are_refused(tmp_path: Path) -> None:
    content = b"\x80\x04" + b"]" * 1_000_000 + b"a" * 999_999 + b"."
    assert "is not a memory snapshot as PyTorch writes it" in refusal(content, tmp_path)


def test_a_cut_off_file_is_refused(tmp_path: Path) -> None:
    for length in range(1, len(PLAIN) - 1):
        sentence = refusal(PLAIN[:length], tmp_path)
        assert length < 3 or "given.pickle is cut off: its pickle does not end within" in sentence
    for compress in (gzip.compress, lzma.compress):
        packed = compress(PLAIN)
        assert "is cut off: it cannot be decompressed to its end" in refusal(packed[: len(packed) // 2], tmp_path)
        packed = bytearray(packed)
        packed[len(packed) // 2] ^= 0xFF
        refusal(bytes(packed), tmp_path)


def test_more_after_the_snapshot_is_refused(tmp_path: Path) -> None:
    assert "after the" in refusal(PLAIN + PLAIN, tmp_path)


def test_a_memo_number_of_millions_takes_no_memory(tmp_path: Path) -> None:
    sentence = refusal(b"\x80\x02]r\xff\xff\xff\xff.", tmp_path)
    assert "what the instruction LONG_BINPUT makes" in sentence


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress])
def test_ten_gigabytes_of_zeros_are_refused_at_once(compress: Callable[[bytes], bytes], tmp_path: Path) -> None:
    # Both formats allow streams behind each other: 160 of 64 MiB are 10 GiB.
    zeros = compress(bytes(64 * MIB))
    prefix = compress(b"\x80\x04\x95" + bytes(8) + b"(")
    before = unpickle._memory_in_use()
    for content, why in ((zeros * 160, "is of no kind"), (prefix + zeros * 160, "decompresses to more than 500 times")):
        started = time.perf_counter()
        assert why in refusal(content, tmp_path)
        assert time.perf_counter() - started < 5
    assert unpickle._memory_in_use() - before < 512 * MIB


def test_ten_gigabytes_of_nothing_on_disk_are_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "sparse.pickle"
    with path.open("wb") as file:
        file.truncate(10 << 30)
    started = time.perf_counter()
    with pytest.raises(UsageError, match="is of no kind that dryfit knows"):
        open_recording(path)
    assert time.perf_counter() - started < 2


def test_a_file_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "MAX_CONTENT_BYTES", 5 * MIB)
    sentence = refusal(pickle.dumps({"segments": ["x" * MIB + str(n) for n in range(9)]}, 4), tmp_path)
    assert "holds more than 5.00 MiB, the most that is read of a snapshot; record fewer events" in sentence


@pytest.mark.parametrize(
    "piece", [b"]", b"}", b"(N", b"M\xff\xff", b"h\x00h\x00", b"G\x00\x00\x00\x00\x00\x00\x00\x01"]
)
def test_a_small_file_of_many_values_stops_at_the_memory_limit(
    piece: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpickle, "MAX_VALUES_BYTES", 64 * MIB)
    # What other tests of this process have let go of would be used again, and the process not grow.
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    sentence = refusal(b"\x80\x04]\x94" + piece * (24 * MIB // len(piece)) + b".", tmp_path)
    assert "takes more than 64.00 MiB of memory to read" in sentence


def test_a_text_longer_than_any_is_refused(tmp_path: Path) -> None:
    sentence = refusal(b"\x80\x04X\xff\xff\xff\xff.", tmp_path)
    assert "it has a text of 4.00 GiB, and none in a snapshot is longer than 16.00 MiB" in sentence


def test_lists_that_hold_each_other_many_times_take_no_time(tmp_path: Path) -> None:
    laugh: list[Any] = ["ha"]
    for _ in range(60):
        laugh = [laugh] * 10
    for place in ("segments", "device_traces"):
        started = time.perf_counter()
        assert "where" in refusal(pickle.dumps({**snapshot(), place: laugh}, 4), tmp_path)
        assert time.perf_counter() - started < 1
    started = time.perf_counter()
    settings_of_many = {**snapshot(), "allocator_settings": {"a": laugh}}
    assert from_snapshot(settings_of_many).about["allocator_settings"] == {"a": None}
    levels: dict[str, Any] = {}
    for _ in range(60):
        levels = dict.fromkeys("abcdefghij", levels)
    found = from_snapshot({**snapshot(), "allocator_settings": levels}).about["allocator_settings"]
    assert found == dict.fromkeys("abcdefghij", dict.fromkeys("abcdefghij"))
    assert time.perf_counter() - started < 1


def test_one_event_named_many_times_stops_at_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_module, "MAX_EVENTS", 1000)
    monkeypatch.setattr(snapshot_segments, "MAX_BLOCKS", 1000)
    monkeypatch.setattr(snapshot_stacks, "MAX_FRAMES", 1000)
    monkeypatch.setattr(snapshot_stacks, "MAX_STACKS", 1000)
    trace = [event("alloc")] * 600
    expect({"device_traces": [trace, trace]}, "it has 1,200 events where at most 1,000 of them is expected")
    held = [block(0)] * 600
    expect([segment(*held), segment(*held)], "it has 1,200 blocks where at most 1,000 of them is expected")
    deep = [event("alloc", frames=[MAIN] * 1001)]
    expect({"device_traces": [deep]}, "more frames than a program can have")
    many = [event("alloc", frames=[{**MAIN, "line": line} for line in range(n, n + 900)]) for n in range(3)]
    expect({"device_traces": [many]}, "more frames than a program can have")


def test_cyclic_values_are_refused(tmp_path: Path) -> None:
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    around: dict[str, Any] = {"segments": []}
    around["device_traces"] = [[around]]
    for value in (cyclic, around, {"segments": cyclic}, {"device_traces": cyclic}, {"device_traces": [cyclic]}):
        assert "is not a memory snapshot as PyTorch" in refusal(pickle.dumps(value, 4), tmp_path)
    framed = snapshot()
    framed["device_traces"][0][0]["frames"] = cyclic
    assert "a list in a list of frames" in refusal(pickle.dumps(framed, 4), tmp_path)


def expect(given: Any, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        from_snapshot(given, name="given.pickle")
    assert sentence in one_sentence(str(caught.value))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            7,
            "given.pickle is no memory snapshot: it holds 7, and a dictionary with segments and device_traces is",
        ),
        ({"weights": 1, 7: 2}, "it holds the keys ['weights', 7], and a dictionary"),
        ({"device_traces": {}}, "it has a dictionary as device_traces where a list is expected"),
        ({"device_traces": [None]}, "it has nothing as a device's trace where a list is expected"),
        ({"device_traces": [["alloc"]]}, "it has 'alloc' in device_traces[0] where an event, a dictionary"),
        ({"device_traces": [[[]]]}, "it has a list in device_traces[0] where an event, a dictionary"),
        ({"device_traces": [[event("alloc"), {}]]}, "it has nothing as the action of an event in device_traces[0]"),
        ({"device_traces": [[event("free"), {}]]}, "it has nothing as the action of an event in device_traces[0]"),
        ({"device_traces": [[event("alloc", size="512")]]}, "it has '512' as the size of an event in device_traces[0]"),
        ({"device_traces": [[event("alloc", size=-512)]]}, "it has -512 as the size of an event"),
        ({"device_traces": [[event("alloc", size=1 << 70)]]}, "it has a number of 71 bits as the size of an event"),
        ({"device_traces": [[event("alloc", size=float("nan"))]]}, "it has nan as the size of an event"),
        ({"device_traces": [[event("alloc", size=1 << 62)]]}, "it has sizes that add up to 4611686018427387904 bytes"),
        ({"device_traces": [[event("alloc", (1 << 64) - 1)]]}, "up to address 18446744073709552127"),
        ({"device_traces": [[event("alloc", addr=None)]]}, "it has nothing as the address of an event"),
        ({"device_traces": [[event("alloc", stream="0")]]}, "it has '0' as the stream of an event"),
        ({"device_traces": [[event("alloc", time_us=-1)]]}, "it has -1 as the time_us of an event"),
        ({"device_traces": [[event("alloc", pool_id=3)]]}, "it has 3 as the pool_id of an event"),
        ({"device_traces": [[event("alloc", pool_id=([], 0))]]}, "it has a list as the pool_id of an event"),
        (
            {"device_traces": [[event([])]]},
            "it has a list as the action of an event in device_traces[0] where a word is expected",
        ),
        ({"device_traces": [[event("alloc", frames="main")]]}, "it has 'main' as frames where a list is expected"),
        ({"device_traces": [[event("alloc", frames=[MAIN, 3])]]}, "it has 3 in a list of frames where a dictionary"),
        ({"device_traces": [[event("alloc", frames=[{"line": 3}])]]}, "it has a frame "),
        ({"device_traces": [[event("oom", device_free="much")]]}, "it has 'much' as the address of an event"),
        ({"segments": [segment(device=1 << 40)]}, "it has a device number 1099511627776 where one below 1024"),
        ({"segments": [segment(device="cuda")]}, "it has 'cuda' as the device of a segment"),
        ({"segments": [7]}, "it has 7 in segments where a segment, a dictionary"),
        ({"segments": [segment(total_size=1 << 63)]}, "it has segments of 9223372036854775808 bytes together"),
        ({"segments": [segment(address=None)]}, "it has nothing as the address of a segment"),
        ({"segments": [segment(segment_pool_id=[1])]}, "as the segment_pool_id of a segment where a pair of numbers"),
        ({"segments": [segment("block")]}, "it has 'block' in the blocks of a segment"),
        (
            {"segments": [segment(block(512, "free"))]},
            "it has 'free' as the state of a block where one of active_allocated",
        ),
        ({"segments": [segment(block(512, ["inactive"]))]}, "as the state of a block where one of active_allocated"),
        ({"segments": [segment(block(4 * MIB))]}, "a block of 4194304 bytes at address"),
        (
            {"segments": [segment(block(512, address=BASE - 512))]},
            "where one inside its segment, behind the block before",
        ),
        ({"segments": [segment(block(512), block(512, address=BASE))]}, "where one inside its segment"),
        ({"segments": [segment(block(-1))]}, "it has -1 as the size of a block"),
    ],
)
def test_wrong_values_are_named_with_what_is_expected(given: Any, sentence: str) -> None:
    expect(given, sentence)


def checkpoint() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
    return file.getvalue()


LEGACY_CHECKPOINT = pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2) + pickle.dumps({}, 2)
OOM_TEXT = (
    b'Traceback (most recent call last):\n  File "train.py", line 3\ntorch.OutOfMemoryError: CUDA out of memory. '
    b"Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB of which 1.20 GiB is free.\n"
)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "given.pickle is empty, and a recording of dryfit or a memory snapshot of PyTorch"),
        (b"x", "is expected; make one: `dryfit run --record run.dryfit train.py`, or on a real card torch.cuda"),
        (checkpoint(), "is a checkpoint or another zip archive, which says nothing of a card's memory"),
        (LEGACY_CHECKPOINT, "is a checkpoint or another zip archive"),
        (
            json.dumps({"verdict": "fits", "peak_allocated_bytes": 1}).encode(),
            "is the answer of `dryfit run --json`, which has",
        ),
        (b'{"schemaVersion": 1, "traceEvents": []}', "is a trace of torch.profiler"),
        (b"[[1, 2, 3], [[4, 5]]]", "is a memory timeline of torch.profiler"),
        (b'{"segments": []}', "is JSON, and a recording"),
        (OOM_TEXT, "is the text of an out-of-memory error, which has sums but not who held the memory"),
        (b"loss 0.3\n" * 200_000, "is text, and a recording"),
        ("größer ".encode() * 200_000, "is text, and a recording"),
        (bytes(range(256)), "is of no kind that dryfit knows"),
        (b"\x28\xb5\x2f\xfd" + bytes(100), "is compressed with zstd"),
        (gzip.compress(gzip.compress(PLAIN)), "is compressed with gzip, and"),
        (b"<!DOCTYPE html><html><body>hello</body></html>", "is an HTML page with no snapshots in it"),
        (b'<html>[{"base64": "gASV"}, {"base64": "gASV"}]', "is an HTML page with 2 snapshots in it"),
        (b'<html>[{"base64": "gASVA"}]', "the snapshot in the page is not whole base64"),
        (b'<html>[{"base64": "gASV"}]', "is cut off: its pickle does not end within the file's 3 bytes"),
        (b'<html>[{"base64": "aGVsbG8="}]', "it does not begin as a pickle of protocol 2 to 5"),
    ],
)
def test_other_files_are_told_what_they_are(content: bytes, sentence: str, tmp_path: Path) -> None:
    assert sentence in refusal(content, tmp_path)


def test_paths_that_name_no_file_are_told_so(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, sentence in (
        (tmp_path, "is a folder, and one file is expected"),
        (tmp_path / "none.pickle", "There is no file "),
        (tmp_path / "pipe", "is no regular file"),
        (tmp_path / "a\0b", "cannot be read: embedded null byte"),
        (tmp_path / ("n" * 300), "cannot be read: file name too long"),
    ):
        with pytest.raises(UsageError, match=re.escape(sentence)) as caught:
            open_recording(path)
        one_sentence(str(caught.value))


# Values that look like a snapshot, with anything anywhere.
scalars = st.one_of(
    st.none(), st.booleans(), st.floats(), st.text(max_size=5), st.integers(-(1 << 71), 1 << 71),
    st.sampled_from(["alloc", "free", "segment_alloc", "oom", "active_allocated", "inactive", BASE, 512]),
)  # fmt: skip
KEYS = ["action", "addr", "size", "stream", "frames", "time_us", "pool_id", "device_free", "segments", "device_traces",
        "address", "total_size", "blocks", "state", "requested_size", "history", "device", "is_expandable", "filename",
        "name", "line", "allocator_settings", "segment_pool_id"]  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(st.sampled_from(KEYS), inner, max_size=8),
    ),
    max_leaves=30,
)


def opens_or_is_refused(call: Callable[[], Any]) -> None:
    """What opens can be replayed and written too."""
    try:
        opened = call()
        if isinstance(opened, Recording):
            for device in opened.devices:
                replay(device, opened.about.get("allocator_settings"))
            to_snapshot(opened)
    except UsageError as error:
        one_sentence(str(error))


@QUICK
@given(values)
def test_any_values_open_or_are_refused(given: Any) -> None:
    opens_or_is_refused(lambda: from_snapshot(given))
    opens_or_is_refused(lambda: from_snapshot({"segments": [given], "device_traces": [[given]]}))


@QUICK
@given(st.data())
def test_a_snapshot_with_one_value_replaced_opens_or_is_refused(data: st.DataObject) -> None:
    whole: Any = snapshot()
    place, steps = whole, data.draw(st.integers(1, 6))
    for step in range(steps):
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            break
        key = data.draw(st.sampled_from(keys))
        if step == steps - 1 or not isinstance(place[key], (dict, list)):
            place[key] = data.draw(values)
            break
        place = place[key]
    opens_or_is_refused(lambda: from_snapshot(whole))


@QUICK
@given(
    st.lists(st.tuples(st.integers(0, len(PLAIN) - 1), st.integers(0, 255)), min_size=1, max_size=4), st.integers(2, 5)
)
def test_a_pickle_with_bytes_changed_opens_or_is_refused(changes: list[tuple[int, int]], protocol: int) -> None:
    content = bytearray(pickle.dumps(snapshot(), protocol))
    for place, value in changes:
        content[place % len(content)] = value
    opens_or_is_refused(lambda: from_snapshot(plain_values(content, "It")))


instructions = st.sampled_from([instruction.code.encode("latin-1") for instruction in pickletools.opcodes])
HARMLESS = [b"]", b"}", b"(", b")", b"a", b"e", b"s", b"u", b"N", b"\x88", b"\x94", b"\x86",
            b"K\x07", b"h\x00", b"h\x01", b"\x8c\x01k", b"q\x00", b"K\x00K\x00\x86", b"\x8a\x01\xff",
            b"j\x01\x00\x00\x00", b"r\x05\x00\x00\x00", b"X\x01\x00\x00\x00k",
            b"G\x00\x00\x00\x00\x00\x00\x00\x00", b"\x95\x05\x00\x00\x00\x00\x00\x00\x00"]  # fmt: skip


@QUICK
@given(st.lists(st.one_of(instructions, st.binary(max_size=3), st.sampled_from(HARMLESS)), max_size=40))
def test_any_instructions_run_or_are_refused(program: list[bytes]) -> None:
    content = b"\x80\x04" + b"".join(program) + b"."
    opens_or_is_refused(lambda: from_snapshot(plain_values(content, "It")))


@QUICK
@given(st.lists(st.sampled_from(HARMLESS), max_size=60))
def test_harmless_instructions_in_any_order_run_or_are_refused(program: list[bytes]) -> None:
    content = b"\x80\x04]\x94}\x94" + b"".join(program) + b"."
    opens_or_is_refused(lambda: plain_values(content, "It"))


@QUICK
@given(
    st.binary(max_size=300),
    st.sampled_from([b"", b"\x80\x04", b"\x1f\x8b\x08", b"\xfd7zXZ\0", b"<html>", b"PK\x03\x04", b"{"]),
)
def test_any_file_opens_or_is_refused(tmp_path: Path, content: bytes, magic: bytes) -> None:
    path = tmp_path / "any"
    path.write_bytes(magic + content)
    opens_or_is_refused(lambda: open_recording(path))


@QUICK
@given(st.binary(max_size=300), st.sampled_from([b"\x80\x04", b"<html>", b"{", b""]), st.booleans())
def test_any_compressed_content_opens_or_is_refused(tmp_path: Path, content: bytes, magic: bytes, xz: bool) -> None:
    path = tmp_path / "any"
    path.write_bytes((lzma if xz else gzip).compress(magic + content))
    opens_or_is_refused(lambda: open_recording(path))

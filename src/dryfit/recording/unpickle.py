"""Reads a pickle of lists, dictionaries, text and numbers, and refuses every other.

A pickle is a program for a small stack machine, which can import and call anything. So it is read twice: first all of
it is taken apart into its instructions, and only those that `torch.cuda.memory._dump_snapshot` needs are let through;
then Python's own unpickler runs it, with a limit to the memory that it may take. Together that takes a second for a
million events, twice as long as the second alone.
"""

from __future__ import annotations

import gc
import os
import pickle
import pickletools
import re
from pathlib import Path
from typing import Any

from dryfit.errors import UsageError
from dryfit.units import GIB, MIB, format_bytes

MAX_TEXT_BYTES = MAX_FRAME_BYTES = 16 * MIB
"""Longer text, or a longer part to be read at once, is in no snapshot: pickle.dump cuts into parts of 64 KiB."""
MAX_VALUES_BYTES = 16 * GIB
"""Memory for the values, where half of the machine's is not less; a million events take about half a GiB."""
_PART_BYTES = 128 << 10

# What the values in a snapshot are made with. A number has at most 9 bytes: a 64-bit one without sign takes so many.
# Pairs only of two short numbers (the id of a memory pool), so no tuple is in a tuple: hashing those recurses in C.
_SHORT_NUMBER = rb"K.|M..|J.{4}"
_NUMBER = _SHORT_NUMBER + rb"|\x8a(?:\x00|\x01.|\x02..|\x03...|\x04.{4}|\x05.{5}|\x06.{6}|\x07.{7}|\x08.{8}|\x09.{9})"
_HARMLESS = re.compile(
    rb"(?:[hq].|[}\](ueas)\x94\x88\x89N]|(?:%b)(?:(?:%b)\x86)?|%b|G.{8}|j.{4}|r...\x00|\x95...\x00{5}){1,4096}"
    % (_SHORT_NUMBER, _SHORT_NUMBER, _NUMBER),
    re.DOTALL,
)
_STOP, _TEXT, _SHORT_TEXT, _NUMBER_OF_ITS_LENGTH = ord("."), ord("X"), 0x8C, 0x8A
_ARGUMENT_BYTES = dict(zip(b"hqKMJjrXG\x95\x8c\x8a", (1, 1, 1, 2, 4, 4, 4, 4, 8, 8, 1, 1), strict=True))
_PROTOCOLS = range(2, 6)
_ADVICE = "give a file that torch.cuda.memory._dump_snapshot() wrote."


def plain_values(content: bytes | bytearray, name: str) -> Any:
    """The lists, dictionaries, text and numbers that a pickle holds.

    >>> plain_values(pickle.dumps({"size": [512, 1.5, None, True]}), "The file")
    {'size': [512, 1.5, None, True]}

    `name` is what an error calls the file.

    Raises:
        UsageError: the pickle would import, call or build anything else, is damaged, or takes too much memory.
    """
    if content[:1] != b"\x80" or len(content) < 3 or content[1] not in _PROTOCOLS:
        raise UsageError(f"{name} is no memory snapshot: it does not begin as a pickle of protocol 2 to 5; {_ADVICE}")
    end = _checked_end(content, name)
    if content[end:].strip(b"\0"):  # HTML exports are filled up with zeros
        raise UsageError(
            f"{name} is no memory snapshot: after the {end:,} bytes of one it goes on with others, and one is "
            f"expected in a file; {_ADVICE}"
        )
    allowance = _memory_allowance()
    collecting = gc.isenabled()
    gc.disable()  # it would look at all values again and again while they are made, and find nothing to free
    try:
        return _PlainUnpickler(_Parts(content, end, allowance)).load()  # type: ignore[arg-type]
    except MemoryError:
        raise UsageError(
            f"{name} takes more than {format_bytes(allowance)} of memory to read, which is more than a snapshot of "
            "16,000,000 events should need; record fewer events: torch.cuda.memory._record_memory_history"
            "(max_entries=1_000_000)."
        ) from None
    except Exception as error:  # whatever a damaged pickle makes of lists and dictionaries
        why = _first_line(error)
        raise UsageError(f"{name} is damaged: its pickle cannot be put together ({why}); {_ADVICE}") from None
    finally:
        if collecting:
            gc.enable()


def _checked_end(content: bytes | bytearray, name: str) -> int:
    """Where the pickle ends, if all its instructions are harmless."""
    harmless, position, length = _HARMLESS.match, 2, len(content)
    while position < length:
        found = harmless(content, position)
        if found:
            position = found.end()
            continue
        instruction = content[position]
        if instruction == _STOP:
            return position + 1
        if instruction == _SHORT_TEXT and position + 1 < length:
            position += 2 + content[position + 1]
        elif instruction == _TEXT and position + 4 < length:
            text_bytes = int.from_bytes(content[position + 1 : position + 5], "little")
            if text_bytes > MAX_TEXT_BYTES:
                raise UsageError(
                    f"{name} is no memory snapshot: it has a text of {format_bytes(text_bytes)}, and none in a "
                    f"snapshot is longer than {format_bytes(MAX_TEXT_BYTES)}; {_ADVICE}"
                )
            position += 5 + text_bytes
        elif _is_cut_off(content, position):
            break
        else:
            raise UsageError(_refusal(content, position, name))
    raise UsageError(
        f"{name} is cut off: its pickle does not end within the file's {length:,} bytes; copy or record it again."
    )


def _is_cut_off(content: bytes | bytearray, position: int) -> bool:
    """Whether the file ends within this instruction."""
    needed = 1 + _ARGUMENT_BYTES.get(content[position], 0)
    if content[position] == _NUMBER_OF_ITS_LENGTH and position + 1 < len(content):
        needed += min(content[position + 1], 9)
    return position + needed > len(content)


def _refusal(content: bytes | bytearray, position: int, name: str) -> str:
    instructions = {instruction.code: instruction.name for instruction in pickletools.opcodes}
    instruction = instructions.get(chr(content[position]))
    if instruction is None:
        return (
            f"{name} is damaged: byte {position:,} of its pickle is {content[position]:#04x}, which is no instruction "
            f"of a pickle; {_ADVICE}"
        )
    wanted = f"what the instruction {instruction} makes"
    if instruction in ("GLOBAL", "INST"):
        named = b".".join(content[position + 1 : position + 80].split(b"\n")[:2]).decode("latin-1")
        wanted = f"Python's {named!a}"
    elif instruction == "STACK_GLOBAL":
        wanted = "an object of a Python module"
    elif instruction == "LONG1":
        wanted = "a number longer than any size or address"
    return (
        f"{name} is no memory snapshot: its pickle asks for {wanted}, at byte {position:,}, and a snapshot holds only "
        f"lists, dictionaries, text and numbers; nothing of it was run; {_ADVICE}"
    )


class _PlainUnpickler(pickle.Unpickler):
    """Refuses objects a second time, should the check of the instructions ever be wrong."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        raise pickle.UnpicklingError(f"it asks for {module_name}.{global_name}")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it asks for an object outside it")


class _Parts:
    """Hands a pickle to the unpickler in parts, and looks at the memory that the values take before each.

    An empty list takes one byte in a pickle and eighty in memory, so a small file can ask for all there is.
    """

    def __init__(self, content: bytes | bytearray, end: int, allowance: int) -> None:
        self._content, self._end, self._position = memoryview(content), end, 0
        self._limit = _memory_in_use() + allowance

    def peek(self, _wanted: int) -> memoryview:
        self._check()
        return self._content[self._position : min(self._position + _PART_BYTES, self._end)]

    def read(self, wanted: int) -> memoryview | bytes:
        self._check()
        start = self._position
        self._position = min(start + wanted, self._end)
        return bytes(self._content[start : self._position])

    def readinto(self, buffer: bytearray) -> int:
        part = self.read(len(buffer))
        buffer[: len(part)] = part
        return len(part)

    def readline(self) -> bytes:
        return b""  # only instructions that are refused have lines

    def _check(self) -> None:
        if _memory_in_use() > self._limit:
            raise MemoryError


def _memory_in_use() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0  # where there is no /proc, the machine's own limits hold


def _memory_allowance() -> int:
    return min(MAX_VALUES_BYTES, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)


def _first_line(error: Exception) -> str:
    return ascii(str(error).partition("\n")[0][:100] or type(error).__name__).strip("'\"")

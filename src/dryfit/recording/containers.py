"""Takes the pickle of a memory snapshot out of what it comes in: gzip, xz, or a page of PyTorch's viewer.

What a file is, is decided by its content; its name may say anything.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import gzip
import lzma
import re
import zlib
from pathlib import Path
from typing import IO

from dryfit.errors import UsageError
from dryfit.recording.other_files import LEGACY_CHECKPOINT, what_it_is
from dryfit.units import GIB, MIB, format_bytes

MAX_CONTENT_BYTES = 4 * GIB
"""Of a snapshot, decompressed: 16 million events, of some 250 bytes each."""
MAX_RATIO = 500
"""Of decompressed to compressed, from `FREE_OF_RATIO_BYTES` on. xz makes real snapshots 20 to 60 times smaller."""
FREE_OF_RATIO_BYTES = 64 * MIB
_HEAD_BYTES = MIB
_PART_BYTES = 4 * MIB

_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_PAGE = re.compile(rb"\s*<(?:!doctype\s+html|html|head|script)\b", re.IGNORECASE)
_EMBEDDED = re.compile(rb"""["']base64["']\s*:\s*["']([A-Za-z0-9+/=]*)["']""")
"""As `torch.cuda._memory_viz.trace_plot` and its like write it, in every version from torch 2.1 on."""


def snapshot_pickle(path: Path, name: str) -> bytes | bytearray:
    """The pickle of the snapshot in a file, of whatever form; still to be read with care (`unpickle.plain_values`).

    `name` is what an error calls the file.

    Raises:
        UsageError: the file has no snapshot (the sentence says what it seems to be), is damaged, or is too large.
    """
    with path.open("rb") as packed, _unpacked(packed) as file:
        head = _read(file, _HEAD_BYTES, name)
        is_page = _PAGE.match(head) is not None
        if not is_page and (not _PICKLE.match(head) or head.startswith(LEGACY_CHECKPOINT)):
            raise UsageError(f"{name} {what_it_is(head, _HEAD_BYTES)}")
        content = bytearray(head)
        while part := _read(file, _PART_BYTES, name):
            content += part
            _check_size(len(content), packed.tell(), name)
    return _embedded(content, name) if is_page else content


def _unpacked(file: IO[bytes]) -> contextlib.AbstractContextManager[IO[bytes]]:
    magic = file.read(6)
    file.seek(0)
    if magic[:2] == b"\x1f\x8b":
        return gzip.open(file)  # type: ignore[return-value]
    if magic == b"\xfd7zXZ\0":
        return lzma.open(file)
    return contextlib.nullcontext(file)


def _read(file: IO[bytes], wanted: int, name: str) -> bytes:
    try:
        return file.read(wanted)
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, MemoryError) as error:
        cut_off = isinstance(error, EOFError)
        raise UsageError(
            f"{name} is {'cut off' if cut_off else 'damaged'}: it cannot be decompressed to its end "
            f"({str(error).rstrip('.') or 'no memory for it'}); copy or record it again."
        ) from None


def _check_size(content_bytes: int, packed_bytes: int, name: str) -> None:
    """Look at the size so far, which `packed_bytes` of the file have made: a bomb is found before it goes off."""
    if content_bytes > MAX_CONTENT_BYTES:
        raise UsageError(
            f"{name} holds more than {format_bytes(MAX_CONTENT_BYTES)}, the most that is read of a snapshot; record "
            "fewer events: torch.cuda.memory._record_memory_history(max_entries=1_000_000)."
        )
    if content_bytes > max(FREE_OF_RATIO_BYTES, MAX_RATIO * packed_bytes):
        raise UsageError(
            f"{name} is no memory snapshot: it decompresses to more than {MAX_RATIO} times its size, and snapshots to "
            "at most about 100 times theirs; give a file that torch.cuda.memory._dump_snapshot() wrote."
        )


def _embedded(page: bytearray, name: str) -> bytes:
    found = _EMBEDDED.findall(page)
    if len(found) != 1:
        raise UsageError(
            f"{name} is an HTML page with {len(found) or 'no'} snapshots in it, and one is expected, as "
            "torch.cuda._memory_viz.trace_plot() writes it; give the snapshot that the page was made from."
        )
    try:
        return base64.b64decode(found[0], validate=True)
    except binascii.Error as error:
        raise UsageError(
            f"{name} is damaged: the snapshot in the page is not whole base64 ({error}); export or copy it again."
        ) from None

"""Says what a file is that is neither a recording nor a snapshot, and what to give instead."""

from __future__ import annotations

import re

_EXPECTED = "a recording of dryfit or a memory snapshot of PyTorch (.pickle, also as .gz or .xz, or .html) is expected"
_RECORD_ONE = (
    f"{_EXPECTED}; make one: `dryfit run --record run.dryfit train.py`, or on a real card "
    'torch.cuda.memory._record_memory_history() before and torch.cuda.memory._dump_snapshot("snapshot.pickle") after.'
)
# Before zip archives, torch.save wrote several pickles, the first of them the magic number 0x1950a86a20f9469cfc6c.
LEGACY_CHECKPOINT = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."

_ARCHIVE = f"is a checkpoint or another zip archive, which says nothing of a card's memory, and {_RECORD_ONE}"
_RESULT = (
    f"is the answer of `dryfit run --json`, which has who owned the peak but no events, and {_EXPECTED}; give what "
    "`dryfit run --record run.dryfit` writes."
)
_TIMELINE = (
    f"is a memory timeline of torch.profiler, which has sizes by category but neither addresses nor lines, and "
    f"{_RECORD_ONE}"
)
_TRACE = f"is a trace of torch.profiler, which has times rather than the allocator's events, and {_RECORD_ONE}"
_ERROR_TEXT = f"is the text of an out-of-memory error, which has sums but not who held the memory, and {_RECORD_ONE}"
_COMPRESSIONS = ((b"\x28\xb5\x2f\xfd", "zstd"), (b"BZh", "bzip2"), (b"\x1f\x8b", "gzip"), (b"\xfd7zXZ", "xz"))


def what_it_is(head: bytes, head_bytes: int) -> str:
    """The rest of a sentence that begins with the file's name, from the first `head_bytes` of its content.

    >>> what_it_is(b"PK" + bytes((3, 4)), 1024)[:44]
    'is a checkpoint or another zip archive, whic'
    """
    if not head:
        return f"is empty, and {_RECORD_ONE}"
    if head.startswith((b"PK\x03\x04", LEGACY_CHECKPOINT)):
        return _ARCHIVE
    for magic, kind in _COMPRESSIONS:
        if head.startswith(magic):
            return f"is compressed with {kind}, and {_EXPECTED}; decompress it first."
    if b'"peak_allocated_bytes"' in head and b'"verdict"' in head:
        return _RESULT
    if re.search(rb"CUDA out of memory|OutOfMemoryError", head):
        return _ERROR_TEXT
    if b'"traceEvents"' in head:
        return _TRACE
    # Raw: [[time, action, size, category], ...]; else [[time, ...], [[size, ...], ...]].
    if re.match(rb"\[\s*\[\s*-?\d+\s*,", head):
        return _TIMELINE
    if re.match(rb"\s*[\[{]\s*[\"\[{\]}]", head):
        return f"is JSON, and {_RECORD_ONE}"
    return f"is {'text' if _is_text(head, head_bytes) else 'of no kind that dryfit knows'}, and {_RECORD_ONE}"


def _is_text(head: bytes, head_bytes: int) -> bool:
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return len(head) == head_bytes and error.start > len(head) - 4  # cut within a character
    return b"\0" not in head

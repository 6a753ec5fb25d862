"""Columns of whole numbers as bytes that compress well; `assets/unpack.js` reads them back."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable
from typing import Any

# The best compression of a large page would take longer than making all the rest of it.
_LARGE_BYTES, _THOROUGH, _QUICK = 2 << 20, 9, 6


def varints(values: Iterable[int]) -> bytes:
    """Numbers from 0 on, seven bits a byte, the lowest first; the top bit says that more follow.

    >>> varints([0, 127, 300]).hex()
    '007fac02'
    """
    out = bytearray()
    append = out.append
    for value in values:
        while value > 127:
            append(value & 127 | 128)
            value >>= 7
        append(value)
    return bytes(out)


def zigzag(value: int) -> int:
    """A number of either sign as one from 0 on, small ones staying small.

    >>> [zigzag(value) for value in (0, -1, 1, -2)]
    [0, 1, 2, 3]
    """
    return value << 1 if value >= 0 else (-value << 1) - 1


def deltas(values: Iterable[int]) -> list[int]:
    """Each number's zigzag difference from the one before, the first one's from 0.

    >>> deltas([5, 7, 6])
    [10, 4, 1]
    """
    out, last = [], 0
    for value in values:
        out.append(zigzag(value - last))
        last = value
    return out


def pack(head: dict[str, Any], columns: dict[str, list[int]]) -> str:
    """Base64 text of a compressed head and columns: the head's length in 4 bytes, the head as JSON, the columns.

    The head gets "columns": by name, where each starts behind the head, in bytes, and how many numbers it has.
    """
    places, body = {}, bytearray()
    for name, values in columns.items():
        places[name] = [len(body), len(values)]
        body += varints(values)
    text = json.dumps({**head, "columns": places}, separators=(",", ":")).encode("ascii")
    raw = len(text).to_bytes(4, "little") + text + body
    level = _THOROUGH if len(raw) < _LARGE_BYTES else _QUICK
    return base64.b64encode(gzip.compress(raw, compresslevel=level, mtime=0)).decode("ascii")

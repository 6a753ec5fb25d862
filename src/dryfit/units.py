"""Bytes in and out of text; the only place that parses or prints them.

>>> parse_bytes("24GiB"), parse_bytes("141GB"), parse_bytes("512")
(25769803776, 141000000000, 512)
>>> format_bytes(25769803776)
'24.00 GiB'
"""

from __future__ import annotations

import re
from fractions import Fraction

from dryfit.errors import UsageError

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40

_UNITS = {
    "": 1, "b": 1,
    "k": KIB, "kib": KIB, "kb": 10**3,
    "m": MIB, "mib": MIB, "mb": 10**6,
    "g": GIB, "gib": GIB, "gb": 10**9,
    "t": TIB, "tib": TIB, "tb": 10**12,
}  # fmt: skip


def parse_bytes(text: str) -> int:
    """Turn a size as people write it into bytes.

    >>> parse_bytes("1.5 GiB")
    1610612736

    `GiB` and a bare `G` count by 1024, `GB` by 1000, as the IEC and SI define them.

    Raises:
        UsageError: the text is not a size, or is not above zero.
    """
    found = re.fullmatch(r"\s*(\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})\s*([a-zA-Z]*)\s*", text)
    if not found or found[2].lower() not in _UNITS:
        raise UsageError(
            f"{text!r} is not an amount of memory; write a number and a unit, such as 24GiB, 80GB or 512MiB."
        )
    size_bytes = int(Fraction(found[1]) * _UNITS[found[2].lower()])  # a float would round
    if size_bytes <= 0:
        raise UsageError(f"{text!r} is not an amount of memory: it has to be above zero.")
    return size_bytes


def format_bytes(size_bytes: int) -> str:
    """Print bytes in the largest binary unit that keeps a figure before the point.

    >>> format_bytes(0), format_bytes(512), format_bytes(8519680), format_bytes(-8519680)
    ('0 B', '512 B', '8.12 MiB', '-8.12 MiB')
    """
    size = abs(size_bytes)
    sign = "-" if size_bytes < 0 else ""
    for unit, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{sign}{size / unit:.2f} {name}"
    return f"{sign}{size} B"

"""Sizes as out-of-memory messages print them."""

from __future__ import annotations

import re
from fractions import Fraction

from dryfit.units import GIB, KIB, MIB, TIB

AMOUNT = r"(?P<number>\d[\d,]{0,24}(?:\.\d{1,6})?)\s?(?P<unit>bytes?|[KMGTPE]i?B|B(?![A-Za-z]))"
"""A size, as a regular expression with the groups `number` and `unit`."""

NO_SUCH_SIZE_BYTES = 1 << 60
"""No device has an exbibyte: such a number is a difference below zero, printed as if it were above, or no limit."""

_AMOUNT = re.compile(AMOUNT)
# MPS wrote KB, MB and GB up to PyTorch 2.6 and divided by 1024 all the same: the limit of the same Mac is "18.13 GB"
# there and "18.13 GiB" since. No other backend ever wrote them.
_UNITS = {"K": KIB, "M": MIB, "G": GIB, "T": TIB, "P": 1 << 50, "E": 1 << 60}


def bytes_of(text: str) -> int | None:
    """The first size in a piece of a message, in bytes; None if there is none.

    >>> bytes_of("0 bytes"), bytes_of("1.05 GiB allowed"), bytes_of("147.24 MB"), bytes_of("1.05")
    (0, 1127428915, 154392330, None)

    PyTorch prints two places, so a size in GiB is known to 5 MiB; `least` and `most` say between what it lies.
    """
    found = _AMOUNT.search(text)
    if found is None:
        return None
    unit_bytes = _UNITS.get(found["unit"][0], 1)
    return round(Fraction(found["number"].replace(",", "")) * unit_bytes)


def least(size_bytes: int) -> int:
    """The least that a size printed with two places can have been."""
    return size_bytes - _half_a_place(size_bytes)


def most(size_bytes: int) -> int:
    """The most that a size printed with two places can have been."""
    return size_bytes + _half_a_place(size_bytes)


def _half_a_place(size_bytes: int) -> int:
    # Up to a whole unit PyTorch prints the next smaller one: 1024.00 MiB.
    unit_bytes = next((unit for unit in (GIB, MIB, KIB) if size_bytes > unit), 0)
    # A whole number of smaller units is no accident: segments are whole MiB.
    exact = unit_bytes == MIB and size_bytes % MIB == 0
    return 0 if exact else unit_bytes // 200

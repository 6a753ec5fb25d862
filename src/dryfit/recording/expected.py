"""Checks of a stranger's values: each is what is expected, or the sentence says what was found instead."""

from __future__ import annotations

from typing import Any

ADDRESSES_END = 1 << 64
MAX_SUM_BYTES = 1 << 62
"""Sizes are added up in columns of 64 bits; no card had this much memory in all its life."""


class Unexpected(Exception):
    def __init__(self, found: str, expected: str) -> None:
        super().__init__(found, expected)
        self.found, self.expected = found, expected


def whole(value: Any, what: str) -> int:
    if isinstance(value, int) and 0 <= value < ADDRESSES_END:
        return value
    raise Unexpected(f"{shown(value)} as {what}", f"a whole number from 0 to {ADDRESSES_END - 1}")


def list_of(value: Any, what: str) -> list[Any]:
    if isinstance(value, list):
        return value
    raise Unexpected(f"{shown(value)} as {what}", "a list")


def check_count(what: str, count: int, limit: int) -> None:
    if count > limit:
        raise Unexpected(f"{count:,} {what}", f"at most {limit:,} of them")


def pool_id(value: Any, what: str) -> tuple[int, int]:
    if isinstance(value, (tuple, list)) and len(value) == 2:
        return whole(value[0], what), whole(value[1], what)
    raise Unexpected(f"{shown(value)} as {what}", "a pair of numbers")


def printable(text: str) -> str:
    """A lone surrogate, as a pickle can hold it, could be neither printed nor saved."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text


def shown(value: Any) -> str:
    """A stranger's value for a sentence: short, whatever it is, and never walked into."""
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return repr(value[:40]) if len(value) <= 40 else f"{value[:40]!r}..."
    if isinstance(value, int) and abs(value) >= 1 << 70:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, (bool, int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)) and value and all(isinstance(entry, (str, int, float)) for entry in value[:8]):
        return f"[{', '.join(shown(entry) for entry in value[:8])}{', ...' if len(value) > 8 else ''}]"
    return {"dict": "a dictionary", "list": "a list", "tuple": "a tuple"}.get(
        type(value).__name__, f"a value of type {type(value).__name__}"
    )

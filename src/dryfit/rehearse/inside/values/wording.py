"""The sentences in which an invented size is stated: how many elements, of how many, and by whose setting."""

from __future__ import annotations

from dryfit.rehearse.assumptions import Assumption


def kept(count: int, of: int, noun: str, verb: str, setting: Assumption | None) -> str:
    """
    >>> kept(500, 1000, "elements", "are kept", None)
    '500 of 1,000 elements are kept'
    >>> kept(1000, 1000, "elements", "are kept", None)
    'all 1,000 elements are kept, the most there can be'
    """
    if count == of:
        return f"all {of:,} {noun} {verb}" + (by(setting) or ", the most there can be")
    return f"{count:,} of {of:,} {noun} {verb}{by(setting)}"


def by(setting: Assumption | None) -> str:
    """
    >>> by(None)
    ''
    """
    return f" (--assume {setting})" if setting is not None else ""


def spread(choices: int, of: int) -> str:
    """
    >>> spread(4096, 8)
    '4,096 choices spread evenly, 512 for each of 8'
    """
    if choices % of == 0:
        return f"{choices:,} choices spread evenly, {choices // of:,} for each of {of:,}"
    return f"{choices:,} choices spread evenly, {choices // of:,} or {choices // of + 1:,} for each of {of:,}"


def crowded(choices: int, chosen: int, of: int) -> str:
    """
    >>> crowded(4096, 2, 8)
    '4,096 choices, 2,048 for each of the same 2 of 8'
    """
    each = f"{choices // chosen:,} for each of the same {chosen:,}" if chosen > 1 else "all for the same one"
    return f"{choices:,} choices, {each} of {of:,}"

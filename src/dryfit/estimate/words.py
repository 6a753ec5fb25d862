"""Words that several messages share."""

from __future__ import annotations

from collections.abc import Iterable


def nearest_of(name: str, names: Iterable[str]) -> str:
    """A sentence with the names that come nearest, and a blank behind it; nothing where none comes near.

    >>> nearest_of("adamv", ["adam", "adamw", "sgd"])
    'The nearest names are adam and adamw. '
    """
    import difflib

    found = difflib.get_close_matches(name, list(dict.fromkeys(names)), n=3, cutoff=0.6)
    if not found:
        return ""
    *others, last = sorted(found) if len(found) > 1 else found
    return f"The nearest names are {', '.join(others)} and {last}. " if others else f"The nearest name is {last}. "

"""What is known of predictions that are far off: `misses.toml`, written by hand."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from .arithmetic import Compared
from .rows import HERE

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MISSES = HERE / "misses.toml"


def explanations(path: Path = MISSES) -> dict[str, str]:
    """Why predictions are off, by the pattern that the ids of their rows match."""
    found: dict[str, str] = tomllib.loads(path.read_text()) if path.exists() else {}
    return found


def why(row_id: str, known: dict[str, str]) -> str:
    """The explanation of a row, "" if there is none; the first pattern that matches counts.

    >>> why("xmem-x119", {"xmem-x11?": "Shorter batches."})
    'Shorter batches.'
    """
    return next((text for pattern, text in known.items() if fnmatchcase(row_id, pattern)), "")


def without_explanation(compared: Iterable[Compared], known: dict[str, str]) -> list[str]:
    """The ids of the misses that nothing is said of."""
    return [each.row.id for each in compared if each.is_miss and not why(each.row.id, known)]


def without_miss(compared: Iterable[Compared], known: dict[str, str]) -> list[str]:
    """The patterns that no miss is explained by any more."""
    needed = [each.row.id for each in compared if each.is_miss]
    used = {next((pattern for pattern in known if fnmatchcase(row_id, pattern)), "") for row_id in needed}
    return [pattern for pattern in known if pattern not in used]

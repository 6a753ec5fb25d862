"""Source lines as a report names them: short, and with their text where the file is at hand."""

from __future__ import annotations

import functools
import re
import tokenize
from pathlib import Path

from dryfit.places import as_seen_from_here

_BEFORE_PACKAGE = re.compile(r"^.*/(?:site|dist)-packages/")
_LARGEST_SOURCE_BYTES = 4 << 20


def place_of(file: str, line: int) -> str:
    """A source line as a person would write it.

    >>> place_of("/venv/lib/python3.12/site-packages/trl/trainer.py", 7), place_of("", 0)
    ('trl/trainer.py:7', '(no line known)')
    """
    if not file:
        return "(no line known)"
    name = within_package(file)
    return f"{as_seen_from_here(file) if name == file else name}:{line}"


def within_package(file: str) -> str:
    """A file of an installed package by its name within it, any other as it is.

    >>> within_package("/venv/lib/python3.12/site-packages/trl/trainer.py"), within_package("/home/me/train.py")
    ('trl/trainer.py', '/home/me/train.py')
    """
    return _BEFORE_PACKAGE.sub("", file) if "-packages/" in file else file


def source_of(file: str, line: int) -> str:
    """The text of a source line without its indentation; "" where the file cannot be read.

    Only Python files are read: the name comes from the recording, which may be another person's.
    """
    lines = _lines_of(file) if file.endswith(".py") else ()
    return lines[line - 1].strip() if 1 <= line <= len(lines) else ""


@functools.lru_cache(maxsize=64)
def _lines_of(file: str) -> tuple[str, ...]:
    try:
        path = Path(file)
        if not path.is_file() or path.stat().st_size > _LARGEST_SOURCE_BYTES:
            return ()
        with tokenize.open(file) as source:
            return tuple(source.read().splitlines())
    except (OSError, SyntaxError, ValueError):
        return ()

"""The line of a person's own program, from the traceback that ends in an error."""

from __future__ import annotations

import re

from dryfit.findings import Place
from dryfit.places import is_of_the_program

_LONGEST = 40_000
_FRAME = re.compile(
    r'^ {1,8}File "(?P<file>[^"\n]{1,500})", line (?P<line>\d{1,7})(?:, in (?P<function>[^\n]{1,200}))?'
    r"(?:\n {4,12}(?P<text>\S[^\n]{0,400}))?",
    re.MULTILINE,
)


def line_that_failed(text: str, error: int) -> Place | None:
    """The innermost line of the program itself in the traceback of the error that stands at `error`.

    >>> text = 'Traceback (most recent call last):\\n  File "train.py", line 3, in f\\n    g()\\nMemoryError: ...'
    >>> found = line_that_failed(text, text.index("MemoryError"))
    >>> found.file, found.line, found.function, found.text
    ('train.py', 3, 'f', 'g()')

    None where no traceback ends in the error, or only libraries are in it. Prefixes of ranks have to be off.
    """
    frames = list(_FRAME.finditer(_traceback_before(text, error)))
    frame = next((each for each in reversed(frames) if is_of_the_program(each["file"].replace("\\", "/"))), None)
    if frame is None:
        return None
    function = frame["function"] or ""
    return Place(file=frame["file"], line=int(frame["line"]), function=function.strip(), text=frame["text"] or "")


def _traceback_before(text: str, error: int) -> str:
    """The indented lines right before the error's own: its traceback, whole or what was pasted of it."""
    end = start = text.rfind("\n", 0, error) + 1
    while start > max(0, end - _LONGEST):
        previous = text.rfind("\n", 0, start - 1) + 1
        if text[previous] not in " \n":
            break
        start = previous
    return text[start:end]

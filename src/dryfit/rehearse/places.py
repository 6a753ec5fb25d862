"""Which source files are the program's own."""

from __future__ import annotations

import re
from pathlib import Path

_INSTALLED = re.compile(r"/lib(?:64)?/python3[^/]*/|/(?:site|dist)-packages/")
_OURS = str(Path(__file__).parents[1])


def is_of_the_program(file: str) -> bool:
    """Whether a source file is neither Python's, nor an installed package's, nor dryfit's.

    >>> is_of_the_program("/home/me/train.py"), is_of_the_program("/usr/lib/python3.11/json/decoder.py")
    (True, False)
    """
    return not (file.startswith(("<", _OURS)) or _INSTALLED.search(file))

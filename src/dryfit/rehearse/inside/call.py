"""The program of a rehearsed function: `python -m dryfit.rehearse.inside.call FILE NAME=VALUE ...` calls it.

FILE is written by `rehearse.callables`; numbers arrive as `int`, other words as `str`.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import sys
from collections.abc import Callable
from types import CodeType

from dryfit.rehearse.inside import bootstrap


def main() -> None:
    """Call what FILE holds, in the place where it was written."""
    _, path, *words = sys.argv
    with open(path, "rb") as file:  # noqa: PTH123 - pathlib may not be imported
        about = json.loads(file.readline())
        sys.argv[:] = about["argv"]
        sys.path[:] = about["path"] + [each for each in sys.path if each not in about["path"]]
        call = pickle.load(file)
    call(**{name: _value(word) for name, _, word in (each.partition("=") for each in words)})
    bootstrap.leave_at_once_when_finished()


def code_of_file(file: str, make: Callable[..., CodeType], arguments: tuple[object, ...]) -> CodeType:
    """Code as it is unpickled, with the file that it comes from."""
    return make(*arguments).replace(co_filename=file)


def _value(word: str) -> int | str:
    with contextlib.suppress(ValueError):
        return int(word)
    return word


if __name__ == "__main__":
    main()

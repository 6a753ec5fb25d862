"""The variables of the functions that run now, without keeping what they hold."""

from __future__ import annotations

import inspect
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dryfit.findings import Place
from dryfit.places import Owner, is_of_the_program, is_ours, owner_of

_KEPT_COPY = sys.version_info < (3, 13)  # from 3.13 on `f_locals` is a view, and nothing is copied


@contextmanager
def variables_of(frame: types.FrameType) -> Iterator[dict[str, Any]]:
    """A frame's variables by name.

    Until Python 3.12 asking for them leaves a copy with the frame, which would keep what the program lets go of; it is
    emptied, unless the program has asked for it itself.
    """
    values = frame.f_locals
    try:
        yield dict(values)
    finally:
        is_copy = _KEPT_COPY and frame.f_code.co_flags & inspect.CO_OPTIMIZED
        if is_copy and isinstance(values, dict) and sys.getrefcount(values) <= 3:  # the frame's, ours, the call's
            values.clear()


def running_frames() -> list[types.FrameType]:
    """The frames of all threads but dryfit's own, of this thread first, from the innermost."""
    others = sys._current_frames()
    # A function that has its own frame among its variables is a circle, and would keep all frames until a collection,
    # and with them what they held as they ended.
    others.pop(threading.get_ident(), None)
    found: dict[int, types.FrameType] = {}
    for start in (sys._getframe(1), *others.values()):
        at: types.FrameType | None = start
        while at is not None:
            if not is_ours(at.f_code.co_filename):
                found.setdefault(id(at), at)
            at = at.f_back
    return list(found.values())


def is_in_pipeline() -> bool:
    """Whether it is a stage of a pipeline that runs this: it calls its model many times before it goes backward."""
    package = "torch.distributed.pipelining"
    at: types.FrameType | None = sys._getframe(1) if package in sys.modules else None
    while at is not None:
        if at.f_globals.get("__name__", "").startswith(package):
            return True
        at = at.f_back
    return False


def program_frame() -> types.FrameType | None:
    """The innermost frame of the program's own code that runs now; a library's where there is none."""
    at: types.FrameType | None = sys._getframe(1)
    library = None
    while at is not None:
        owner = owner_of(at.f_code.co_filename)
        if owner is Owner.PROGRAM:
            return at
        if owner is Owner.LIBRARY and library is None:
            library = at
        at = at.f_back
    return library


def program_place() -> Place | None:
    """The line of the program that runs now."""
    import linecache

    frame = program_frame()
    if frame is None:
        return None
    file, line = frame.f_code.co_filename, frame.f_lineno
    text = linecache.getline(file, line).strip()
    return Place(file=file, line=line, function=frame.f_code.co_name, text=text)


def program_codes() -> list[types.CodeType]:
    """The functions of the program that run on this thread, from the innermost."""
    found = []
    at: types.FrameType | None = sys._getframe(1)
    while at is not None:
        if is_of_the_program(at.f_code.co_filename):
            found.append(at.f_code)
        at = at.f_back
    return found

"""The values that had to be invented, each with the line of the program that asked for it."""

from __future__ import annotations

import linecache
import sys
import threading
from dataclasses import dataclass
from types import CodeType, FrameType

from dryfit.places import Owner, owner_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Invention:
    """A value that was asked for, that no small operator wrote, and what the program was told instead.

    Example:
        Invention(what="nonzero", answer="kept all 4096", decides_size=True, file="/home/me/train.py", line=12,
                  function="step", source="kept = x[mask]", through="", count=3)

    `decides_size`: the answer set the size of a tensor, so memory depends on it. `file`, `line`, `function` and
    `source` are the innermost line of the program itself, else of the library that asked; `through` is that library's
    own "file:line" when a line of the program stands in front of it, else "". `answer` is the first one given there.
    """

    what: str
    answer: str
    decides_size: bool
    file: str
    line: int
    function: str
    source: str
    through: str
    count: int


_Place = tuple[CodeType, int]


class Inventions:
    """Counts what is invented, cheaply: by what it is and by the line, with no text made before it is asked for."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, _Place | None, _Place | None], tuple[str, bool, int]] = {}
        self._owners: dict[CodeType, Owner] = {}
        self._counting = threading.RLock()  # reentrant, for a finalizer may read a value too

    def record(self, what: str, answer: str, *, decides_size: bool) -> None:
        """Count one invented value for the line that is running."""
        program, library = self._places(sys._getframe(1))
        if program is None and library is None:
            # A backward pass runs its kernels in a thread of its own; the line is the one that waits for it.
            waiting = sys._current_frames().get(threading.main_thread().ident or 0)
            program, library = self._places(waiting)
        key = (what, program, library)
        with self._counting:
            answer, decides_size, count = self._found.get(key, (answer, decides_size, 0))
            self._found[key] = (answer, decides_size, count + 1)

    def listed(self) -> list[Invention]:
        """What was invented so far: what decides a size first, then by how often."""
        found = [self._described(*key, *value) for key, value in self._found.copy().items()]
        return sorted(found, key=lambda invention: (not invention.decides_size, -invention.count))

    def _places(self, frame: FrameType | None) -> tuple[_Place | None, _Place | None]:
        """The innermost line of the program, and the innermost line of a library."""
        library: _Place | None = None
        while frame is not None:
            code = frame.f_code
            owner = self._owners.get(code)
            if owner is None:
                owner = self._owners[code] = owner_of(code.co_filename)
            if owner is Owner.PROGRAM:
                return (code, frame.f_lineno), library
            if owner is Owner.LIBRARY and library is None:
                library = (code, frame.f_lineno)
            frame = frame.f_back
        return None, library

    def _described(
        self, what: str, program: _Place | None, library: _Place | None, answer: str, decides_size: bool, count: int
    ) -> Invention:
        place = program or library
        code, line = place if place else (None, 0)
        file = code.co_filename if code else ""
        return Invention(
            what=what,
            answer=answer,
            decides_size=decides_size,
            file=file,
            line=line,
            function=getattr(code, "co_qualname", getattr(code, "co_name", "")),  # the first since Python 3.11
            source=linecache.getline(file, line).strip(),
            through=f"{library[0].co_filename}:{library[1]}" if program and library else "",
            count=count,
        )

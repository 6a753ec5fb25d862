"""The values that had to be invented, each with the line of the program that asked for it."""

from __future__ import annotations

import linecache
import sys
import threading
from dataclasses import dataclass
from pathlib import PurePath
from types import CodeType, FrameType

from dryfit.places import Owner, owner_of
from dryfit.rehearse.assumptions import KINDS
from dryfit.rehearse.inside.values.assumed import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Invention:
    """A value that was asked for, that no small operator wrote, and what the program was told instead.

    Example:
        Invention(what="nonzero", answer="kept all 4096", decides_size=True, file="/home/me/train.py", line=12,
                  function="step", source="kept = x[mask]", through="", count=3)

    `decides_size`: the answer set the size of a tensor, so memory depends on it. `file`, `line`, `function` and
    `source` are the innermost line of the program itself, else of the library that asked; `through` is that library's
    own "file:line" when a line of the program stands in front of it, else "". `answer` is the first one given there, of
    sizes that of the largest. `to_change` is what to write for another answer, else "".
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
    to_change: str = ""


Key = tuple[str, Place | None, Place | None]


@dataclass(slots=True)
class _Found:
    answer: str
    decides_size: bool
    kind: str
    size: int
    count: int = 0


def is_of_a_text() -> bool:
    """Whether torch is making the text of a tensor: what it asks the card for meanwhile decides that text alone."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") != "torch._tensor_str":
        frame = frame.f_back
    return frame is not None


class Inventions:
    """Counts what is invented, cheaply: by what it is and by the line, with no text made before it is asked for."""

    def __init__(self) -> None:
        self._found: dict[Key, _Found] = {}
        self._owners: dict[CodeType, Owner] = {}
        self._counting = threading.RLock()  # reentrant, for a finalizer may read a value too

    def record(self, what: str, answer: str, *, decides_size: bool, kind: str = "", size: int = 0) -> Key:
        """Count one invented value for the line that is running; `size` is how large what it decided is."""
        key = (what, *self.places())
        with self._counting:
            found = self._found.get(key)
            if found is None:
                found = self._found[key] = _Found(answer, decides_size, kind, size)
            elif size > found.size:
                found.answer, found.size = answer, size
            found.count += 1
        return key

    def decided_a_size(self, key: Key) -> None:
        """Note that a size came of what was invented, of which that was not known then."""
        self._found[key].decides_size = True

    def places(self) -> tuple[Place | None, Place | None]:
        """The innermost line of the program that is running, and the innermost of a library that it called."""
        program, library = self._places(sys._getframe(1))
        if program is None and library is None:
            # A backward pass runs its kernels in a thread of its own; the line is the one that waits for it.
            waiting = sys._current_frames().get(threading.main_thread().ident or 0)
            program, library = self._places(waiting)
        return program, library

    def listed(self) -> list[Invention]:
        """What was invented so far: what decides a size first, then by how often."""
        found = [_described(*key, value) for key, value in self._found.copy().items()]
        return sorted(found, key=lambda invention: (not invention.decides_size, -invention.count))

    def _places(self, frame: FrameType | None) -> tuple[Place | None, Place | None]:
        library: Place | None = None
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


def _described(what: str, program: Place | None, library: Place | None, found: _Found) -> Invention:
    place = program or library
    code, line = place if place else (None, 0)
    file = code.co_filename if code else ""
    return Invention(
        what=what,
        answer=found.answer,
        decides_size=found.decides_size,
        file=file,
        line=line,
        function=getattr(code, "co_qualname", getattr(code, "co_name", "")),  # the first since Python 3.11
        source=linecache.getline(file, line).strip(),
        through=f"{library[0].co_filename}:{library[1]}" if program and library else "",
        count=found.count,
        to_change=_to_change(found.kind, library or program),
    )


def _to_change(kind: str, place: Place | None) -> str:
    """What to write for another answer at this line alone; a library's own line is the more precise one."""
    if not kind:
        return ""
    if place is None or kind == "turns":
        return f"--assume {kind}={KINDS[kind].example}"
    code, line = place
    path = PurePath(code.co_filename)
    name = str(PurePath(*path.parts[-2:])) if path.name.startswith("__") else path.name
    return f"--assume {name}:{line}={KINDS[kind].example}"

"""Names as a page shows them: whatever a recording holds, visible and of a length to read."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

from dryfit.recording.model import Recording
from dryfit.report.source_lines import within_package

_MOST_CHARACTERS = 1000
# Control characters but for the line's end and the tab, what turns the direction of text, and half characters.
_INVISIBLE = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def shown(name: str) -> str:
    r"""A text with its invisible characters written out, and only the ends of one that is too long to read.

    >>> shown("a\x00b"), shown("\u202etxt.exe"), len(shown("x" * 1_000_000))
    ('a\\x00b', '\\u202etxt.exe', 1000)
    """
    if len(name) > _MOST_CHARACTERS:
        end = _MOST_CHARACTERS // 2
        name = f"{name[: end - 1]} … {name[2 - end :]}"
    return _INVISIBLE.sub(_written_out, name)


def _written_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def short_names(recording: Recording) -> Callable[[str], str]:
    """How files of a recording are named: within their package, or within the folder that the program was started in.

    That is known from the recording itself, so that equal recordings give equal pages wherever these are made.
    """
    folder = _started_in(recording)

    @functools.cache
    def short(file: str) -> str:
        name = within_package(file)
        return name.removeprefix(folder) if name == file else name

    return short


def _started_in(recording: Recording) -> str:
    """The folder, with the slash at its end; of a script with an absolute path, the script's own; "" if unknown."""
    words = recording.about.get("program")
    first = words[0] if isinstance(words, list | tuple) and words else ""
    script = first.removeprefix("./") if isinstance(first, str) else ""
    if script.startswith("/"):
        return f"{script.rpartition('/')[0]}/"
    files = {frame.file for frame in recording.stacks.all_frames} if script.endswith(".py") else ()
    return min((file.removesuffix(script) for file in files if file.endswith(f"/{script}")), key=len, default="")

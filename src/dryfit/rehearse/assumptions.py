"""What `--assume` says of values that the virtual card cannot know: by their kind, or for one line of the program."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from dryfit.errors import UsageError

EVEN, WORST = "even", "worst"

Assume = str | Sequence[str] | Mapping[str, float | str]
"""`"nonzero=0.5,train.py:41=0.25"`, a list of such, or `{"nonzero": 0.5, "train.py:41": 0.25}`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of value: what its number says, whether a number can say it, and what to write for an example."""

    says: str
    takes: Callable[[float | str], bool]
    wants: str
    example: str


def _is_share(value: float | str) -> bool:
    return isinstance(value, float) and 0 <= value <= 1


def _is_routing(value: float | str) -> bool:
    return value in (EVEN, WORST)


def _is_number(value: float | str) -> bool:
    return isinstance(value, float)


def _is_count(value: float | str) -> bool:
    return isinstance(value, float) and value >= 0


def _is_turns(value: float | str) -> bool:
    return isinstance(value, float) and value >= 1 and value.is_integer()


_SHARE = "a share from 0 to 1"
KINDS = {
    "nonzero": Kind(says="the share of a mask that is kept", takes=_is_share, wants=_SHARE, example="0.5"),
    "unique": Kind(says="the share of values that is distinct", takes=_is_share, wants=_SHARE, example="0.1"),
    "nms": Kind(says="the share of boxes that is kept", takes=_is_share, wants=_SHARE, example="0.1"),
    "routing": Kind(says="how choices are spread", takes=_is_routing, wants="even or worst", example="worst"),
    "item": Kind(says="the number that is read", takes=_is_number, wants="a number", example="0.5"),
    "repeats": Kind(says="how often each element comes", takes=_is_count, wants="a number, 0 or more", example="2"),
    "turns": Kind(
        says="how many turns an endless loop takes",
        takes=_is_turns,
        wants="a whole number, 1 or more",
        example="256",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """One setting of `--assume`.

    >>> parse("train.py:41=0.25")[0].line
    41

    `name` is as it was written, a kind of `KINDS` or a place; of a place there are `file` and `line`. `value` is a
    number, or "even" or "worst".
    """

    name: str
    value: float | str
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        return f"{self.name}={self.value if isinstance(self.value, str) else format(self.value, '.15g')}"

    def is_at(self, file: str, line: int) -> bool:
        """Whether it is for this line of a source file, whose path ends in the one that was written."""
        parts = PurePath(self.file).parts
        return self.line == line and PurePath(file).parts[-len(parts) :] == parts


def parse(given: Assume) -> tuple[Assumption, ...]:
    """Read what was given to `--assume`.

    >>> [str(each) for each in parse("nonzero=0.5, routing=worst")]
    ['nonzero=0.5', 'routing=worst']

    Raises:
        UsageError: a word is not NAME=VALUE, there is no such name, a value is out of its range, a name comes twice.
    """
    found: dict[str, Assumption] = {}
    for word in _words(given):
        assumption = _read(word)
        before = found.setdefault(assumption.name, assumption)
        if before is not assumption:
            raise UsageError(f"--assume {assumption.name} is given twice, as {before} and as {assumption}; keep one.")
    return tuple(found.values())


def _words(given: Assume) -> Iterable[str]:
    if isinstance(given, Mapping):
        return [f"{name}={value}" for name, value in given.items()]
    texts = [given] if isinstance(given, str) else given
    return [word.strip() for text in texts for word in text.split(",") if word.strip()]


def _read(word: str) -> Assumption:
    name, equals, text = (part.strip() for part in word.rpartition("="))
    if not equals or not name or not text:
        raise UsageError(f"--assume {word} cannot be read; write a name and a value, as in --assume nonzero=0.5")
    value = _value(text)
    if name in KINDS:
        kind = KINDS[name]
        if not kind.takes(value):
            raise UsageError(
                f"--assume {word}: {name} is {kind.says}, and takes {kind.wants}; write "
                f"--assume {name}={kind.example}, for one."
            )
        return Assumption(name=name, value=value)
    file, colon, line = name.rpartition(":")
    if not colon or not file:
        raise UsageError(
            f"--assume {word}: nothing is called {name}{_meant(name)}. There are {', '.join(KINDS)}, and lines of the "
            "program, as in --assume train.py:41=0.25"
        )
    if not (line.isascii() and line.isdigit() and int(line) > 0):
        raise UsageError(f"--assume {word}: {line or 'nothing'} is no line of {file}; lines are counted from 1.")
    if isinstance(value, str) and not _is_routing(value):
        raise UsageError(
            f"--assume {word}: {text} is neither a number nor {EVEN} nor {WORST}; write --assume {name}=0.25, for one."
        )
    return Assumption(name=name, value=value, file=file, line=int(line))


def _value(text: str) -> float | str:
    """A number if it is one, of those that are finite; else the word itself."""
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text


def _meant(name: str) -> str:
    close = difflib.get_close_matches(name, KINDS, n=1)
    return f" (is {close[0]} meant?)" if close else ""


USED, UNUSED = "used", ""


def notes(given: Sequence[Mapping[str, str]]) -> list[str]:
    """A sentence for each place that was given and did nothing, from what became of the places in each process.

    A process says "used", "" where nothing was asked at that line, or what was asked there that takes another value.
    """
    found: dict[str, str] = {}
    for of_process in given:
        for place, fate in of_process.items():
            found[place] = USED if USED in (fate, found.get(place)) else fate or found.get(place, UNUSED)
    return [_note(place, fate) for place, fate in found.items() if fate != USED]


def _note(place: str, fate: str) -> str:
    if fate == UNUSED:
        return (
            f"--assume {place} changed nothing: no unknown value was asked for at that line. Where some were, is "
            "listed among what is not known."
        )
    return f"--assume {place} changed nothing: {fate} is asked there, which takes {KINDS[fate].wants}."

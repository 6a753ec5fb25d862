"""The file of a sweep: programs with placeholders, values for these, cards, worlds, measures, and options.

program = ["train.py", "--batch", "{batch}"]

[grid]
batch = [1, 2, 4, 8]
gpu = ["a100-80gb", "rtx-4090"]

[options]
steps = 3
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dryfit.errors import UsageError
from dryfit.search.words import placeholders_of
from dryfit.sweeping.options import options_of
from dryfit.sweeping.row import RESULT_COLUMNS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]

Value = int | float | str
Values = Mapping[str, tuple[Value, ...]]

GPU, WORLD, WITH = "gpu", "world", "with"
RESERVED = (GPU, WORLD, WITH)
"""Axes that say something to dryfit, and not only to the program: cards, ranks of a world, measures."""

_PARTS = ("program", "grid", "options")
_PARTS_OF_A_PROGRAM = ("name", "words", "grid")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptProgram:
    """A program's words, and the values of each of its axes, in the order of the file; the last varies fastest."""

    name: str
    words: tuple[str, ...]
    axes: Values


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """What a sweep is over. `options` are those of `dryfit.run`, by its names, for every cell."""

    programs: tuple[SweptProgram, ...]
    options: Mapping[str, Any]


def read_grid(path: Path) -> Grid:
    """Read a grid's TOML file.

    Raises:
        UsageError: it cannot be read, is not TOML, or `grid_of` refuses it; the sentence begins with the file.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"There is no file {path}; name the TOML file of a sweep, see docs/sweep.md.") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}. docs/sweep.md has an example to start from.") from error
    try:
        return grid_of(values)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def grid_of(values: Mapping[str, Any]) -> Grid:
    """Make a grid of the values of its file.

    >>> grid = grid_of({"program": ["train.py", "{batch}"], "grid": {"batch": [1, 2], "gpu": "l4"}})
    >>> grid.programs[0].name, dict(grid.programs[0].axes)
    ('train.py', {'batch': (1, 2), 'gpu': ('l4',)})

    Raises:
        UsageError: a part is missing or unknown, a placeholder has no values, values have no placeholder, an option is
            unknown or has a value that it cannot have.
    """
    _check_names(values, _PARTS, "the file", "program = [...], [grid] and [options]")
    shared = _axes_of(values.get("grid", {}), "[grid]")
    programs = tuple(_program_of(table, shared) for table in _tables_of(values))
    for name in shared:
        if name not in RESERVED and not any(name in program.axes for program in programs):
            raise UsageError(_no_place(name, "[grid]", [word for program in programs for word in program.words]))
    names = [program.name for program in programs]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f'Two programs are called {name}; give each a name of its own: name = "{name}, long"')
    axes = {name for program in programs for name in program.axes}
    return Grid(programs=programs, options=options_of(values.get("options", {}), has_world=WORLD in axes))


def _tables_of(values: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The programs as tables, whether they are written so, or one of them as a list of words."""
    written = values.get("program")
    if not written:
        raise UsageError('It names no program; write its words: program = ["train.py", "--batch", "{batch}"]')
    if isinstance(written, Mapping):
        return [written]
    if not isinstance(written, Sequence) or isinstance(written, str):
        raise UsageError(
            f"program = {written!r} is not a list of words; write each word by itself: "
            'program = ["train.py", "--batch", "{batch}"]'
        )
    if any(isinstance(each, Mapping) for each in written):
        return list(written)
    return [{"words": written}]


def _program_of(table: Mapping[str, Any], shared: Values) -> SweptProgram:
    if not isinstance(table, Mapping):
        raise UsageError(f"{table!r} stands among tables of programs, and is none; write [[program]] for each.")
    _check_names(table, _PARTS_OF_A_PROGRAM, "[[program]]", "name, words and [program.grid]")
    words = table.get("words")
    if not isinstance(words, Sequence) or isinstance(words, str) or not words:
        raise UsageError('A [[program]] has no list of words; write them: words = ["train.py", "--batch", "{batch}"]')
    for word in words:
        if isinstance(word, bool) or not isinstance(word, (str, int, float)):
            raise UsageError(f"The program's word {word!r} is neither text nor a number; write it in quotes.")
    words = tuple(str(word) for word in words)
    name = str(table.get("name") or _name_of(words))
    held = list(dict.fromkeys(each for word in words for each in placeholders_of(word)))
    own = _axes_of(table.get("grid", {}), f"[program.grid] of {name}")
    axes = {each: values for each, values in shared.items() if each in RESERVED or each in held} | own
    for each in held:
        if each not in axes:
            raise UsageError(
                f"{{{each}}} in {name} stands for nothing: give it values in [grid], as in {each} = [1, 2], or write "
                f"{{{{{each}}}}} if the program is to get {{{each}}} as it is."
            )
        if each in RESULT_COLUMNS:
            raise UsageError(
                f"{{{each}}} in {name} would be a column of the table beside the result's own {each}; name it "
                f"otherwise: {{my_{each}}}"
            )
    for each in own:
        if each not in RESERVED and each not in held:
            raise UsageError(_no_place(each, f"[program.grid] of {name}", words))
    return SweptProgram(name=name, words=words, axes=axes)


def _axes_of(table: Any, where: str) -> dict[str, tuple[Value, ...]]:
    if not isinstance(table, Mapping):
        raise UsageError(f"{where} is no table; write [grid], and below it a line for each placeholder: batch = [1, 2]")
    return {name: _values_of(name, given, where) for name, given in table.items()}


def _values_of(name: str, given: Any, where: str) -> tuple[Value, ...]:
    values = list(given) if isinstance(given, (list, tuple, range)) else [given]
    if not values:
        raise UsageError(f"{where} has no value for {name}; write one or more ({name} = [1, 2]) or leave it out.")
    seen = set[Value]()
    for value in values:
        if isinstance(value, bool):
            raise UsageError(
                f"{where}: {name} = {str(value).lower()} could be written True, true or 1 for a program; write the "
                f'word that it reads, in quotes: {name} = ["True", "False"]'
            )
        if not isinstance(value, (int, float, str)):
            raise UsageError(f"{where}: {name} has the value {value!r}, which is neither a number nor text in quotes.")
        if name == WORLD and not isinstance(value, int):
            raise UsageError(f"{where}: world = {value!r} is no number of ranks; write whole numbers: world = [1, 8]")
        if name in (GPU, WITH) and not isinstance(value, str):
            raise UsageError(f"{where}: {name} = {value!r} is no text; write names in quotes.")
        if value in seen:
            raise UsageError(f"{where}: {name} has the value {value!r} twice; every cell is rehearsed once.")
        seen.add(value)
    return tuple(values)


def _name_of(words: Sequence[str]) -> str:
    if words[0] == "-m" and len(words) > 1:
        return words[1]
    return next((word for word in words if word.endswith(".py")), words[0])


def _no_place(name: str, where: str, words: Sequence[str]) -> str:
    held = list(dict.fromkeys(each for word in words for each in placeholders_of(word)))
    listed = " and ".join(f"{{{each}}}" for each in held)
    there = f"; there {'is' if len(held) == 1 else 'are'} {listed}" if held else ""
    return f"{name} in {where} has no place to go: no word of a program holds {{{name}}}{there}."


def _check_names(table: Mapping[str, Any], known: Sequence[str], where: str, should: str) -> None:
    for name in table:
        if name not in known:
            raise UsageError(f"{name} is no part of {where}, which has {should}.")

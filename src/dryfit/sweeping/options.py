"""The options of a sweep, as its file has them, checked and by `dryfit.run`'s names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dryfit.errors import UsageError
from dryfit.rehearse.assumptions import parse
from dryfit.rehearse.inside.longest.asked import checked
from dryfit.units import parse_bytes

_OF_A_WORLD = ("nodes", "ranks")


def options_of(table: Any, *, has_world: bool = True) -> dict[str, Any]:
    """Read the options of a sweep, which are those of `dryfit run` with the same names.

    >>> options_of({"steps": 3, "host-memory": "2GiB", "skip-weights": True})
    {'steps': 3, 'host_memory_bytes': 2147483648, 'skip_weights': True}

    Raises:
        UsageError: there is no such option, it cannot have that value, or it is of a world and there is none.
    """
    if not isinstance(table, Mapping):
        raise UsageError("[options] is no table; write [options], and below it a line for each: steps = 3")
    options = {}
    for written, value in table.items():
        name = written.replace("_", "-")
        if name == "allow-writes":
            raise UsageError("allow-writes is no option of a sweep: cells side by side would write over files.")
        if name not in _OPTIONS:
            raise UsageError(f"There is no option {written}; [options] may have {', '.join(_OPTIONS)}.")
        if name in _OF_A_WORLD and not has_world:
            raise UsageError(f"{name} says something of a world: give its ranks in [grid], as in world = [8]")
        parameter, read = _OPTIONS[name]
        options[parameter] = read(name, value)
    return options


def _size(name: str, value: Any) -> int:
    if not isinstance(value, str):
        raise UsageError(f'{name} = {value!r} is no size; write a number and a unit in quotes: {name} = "24GiB"')
    return parse_bytes(value)


def _steps(name: str, value: Any) -> int | str:
    if value == "all" or (_is_whole(value) and value >= 1):
        return value  # type: ignore[no-any-return]
    raise UsageError(f'{name} = {value!r} is neither a number of optimiser steps, 1 or more, nor "all".')


def _count(name: str, value: Any) -> int:
    if not _is_whole(value) or value < 1:
        raise UsageError(f"{name} = {value!r} is no whole number of 1 or more.")
    return int(value)


def _seconds(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise UsageError(f"{name} = {value!r} leaves no time to run a cell; give a number above 0.")
    return float(value)


def _yes_or_no(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{name} = {value!r} is neither true nor false.")
    return value


def _ranks(name: str, value: Any) -> str:
    if not isinstance(value, str) and not _is_whole(value):
        raise UsageError(f'{name} = {value!r} names no ranks; write {name} = "0,last"')
    return str(value)


def _longest(name: str, value: Any) -> str:
    if not isinstance(value, (bool, str)):
        raise UsageError(f'{name} = {value!r} is neither true nor a percentile; write {name} = "p99"')
    return checked(value)


def _assume(name: str, value: Any) -> list[str]:
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, (list, tuple)) or not all(isinstance(word, str) for word in words):
        raise UsageError(f'{name} = {value!r} is no list of assumptions; write {name} = ["nonzero=0.5"]')
    return [str(each) for each in parse(words)]


def _order(name: str, value: Any) -> str:
    if value not in ("linux", "up", "down"):
        raise UsageError(f"{name} = {value!r} is none of linux, up, down.")
    return str(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_OPTIONS: dict[str, tuple[str, Callable[[str, Any], Any]]] = {
    "steps": ("steps", _steps),
    "seconds": ("seconds", _seconds),
    "memory": ("memory_bytes", _size),
    "reserve": ("reserve_bytes", _size),
    "host-memory": ("host_memory_bytes", _size),
    "nodes": ("nodes", _count),
    "ranks": ("ranks", _ranks),
    "cards": ("cards", _count),
    "longest": ("longest", _longest),
    "assume": ("assume", _assume),
    "address-order": ("address_order", _order),
    "allow-network": ("allow_network", _yes_or_no),
    "skip-weights": ("skip_weights", _yes_or_no),
    "exact-weights": ("exact_weights", _yes_or_no),
}

"""Dataclasses as JSON's types, and back, by their fields' types."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

_Value = TypeVar("_Value")


def to_plain(value: Any) -> Any:
    """The same in dicts, lists and plain values.

    >>> to_plain({"shape": (2, 3)})
    {'shape': [2, 3]}
    """
    if is_dataclass(value):
        return {each.name: to_plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, (tuple, list)):
        return [to_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: to_plain(each) for key, each in value.items()}
    return value


def from_plain(kind: type[_Value], values: Any) -> _Value:
    """The dataclass that `to_plain` took apart; fields it does not have are skipped.

    Raises:
        KeyError: a field without a default is missing.
        TypeError: a value is not of its field's type.
    """
    if not isinstance(values, dict):
        raise TypeError(f"{kind.__name__} was expected, and {type(values).__name__} found")
    arguments = {}
    types = _types(kind)  # type: ignore[arg-type]
    for each in fields(kind):  # type: ignore[arg-type]
        if each.name in values:
            arguments[each.name] = _as(types[each.name], values[each.name], f"{kind.__name__}.{each.name}")
        elif each.default is MISSING and each.default_factory is MISSING:
            raise KeyError(f"{kind.__name__}.{each.name}")
    return kind(**arguments)


@cache
def _types(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _as(kind: Any, value: Any, where: str) -> Any:
    if kind is Any:
        return value
    if get_origin(kind) in (Union, UnionType):
        other = next(each for each in get_args(kind) if each is not type(None))
        return None if value is None else _as(other, value, where)
    if is_dataclass(kind):
        return from_plain(kind, value)  # type: ignore[arg-type]
    plain: Any = list if get_origin(kind) is tuple else get_origin(kind) or kind
    of: tuple[Any, ...] = get_args(kind)
    if plain is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if plain is list and isinstance(value, tuple):  # as `asdict` leaves it, and JSON does not
        value = list(value)
    if not isinstance(value, plain) or (plain is int and isinstance(value, bool)):
        raise TypeError(f"{where} was expected to be of type {plain.__name__}, and {value!r} found")
    if isinstance(value, dict):
        return {key: _as(of[1], each, f"{where}[{key!r}]") for key, each in value.items()} if of else value
    if not isinstance(value, list) or not of:
        return value
    if get_origin(kind) is list:
        return [_as(of[0], each, where) for each in value]
    if of[-1] is Ellipsis:
        return tuple(_as(of[0], each, where) for each in value)
    if len(of) != len(value):
        raise TypeError(f"{where} was expected to have {len(of)} members, and {value!r} found")
    return tuple(_as(each, part, where) for each, part in zip(of, value, strict=True))

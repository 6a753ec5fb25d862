"""Who keeps a group of objects, each holder once: its name as the program writes it, its line, what is on the way."""

from __future__ import annotations

import functools
import re
import sys
import types
from collections import deque
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any

from dryfit.findings import Place
from dryfit.places import is_of_the_program
from dryfit.watching import naming_lines, source_places
from dryfit.watching.frames import program_codes
from dryfit.watching.holders import Way, is_program_module, ways_to
from dryfit.watching.naming_lines import Naming
from dryfit.watching.torch_private import is_function_context

_NUMBER = re.compile(r"\[-?\d+\]|\{\.\.\.\}|\[\.\.\.\]")
_ITEM = re.compile(r"\[.*\]|\{\.\.\.\}")
_CACHE: Any = type(functools.lru_cache(len))
_VARIABLE = re.compile(r"\.<(\w+)>")
_ATTRIBUTE = re.compile(r"\.(\w+)")


@dataclass(slots=True, kw_only=True)
class Held:
    """A holder and those of the objects that it keeps, by their places in what was asked for.

    `name` is what holds them (`losses`, `self.features`), `chain` leads on to one of them. `owner` is the class whose
    attribute the name is. `on_ctx`, `in_error` name the context's attribute or the error where one is on the way.
    """

    name: str
    chain: tuple[str, ...]
    place: Place | None
    naming: Naming | None
    of: list[int]
    has_room_for_so_many: bool
    owner: type | None = None
    classes: tuple[type, ...] = ()
    on_ctx: str = ""
    in_error: str = ""
    is_program: bool = True

    @property
    def is_bounded(self) -> bool:
        """Whether what it holds does not grow for good: by its container, or by what the same loop does to it."""
        return self.has_room_for_so_many or (self.naming is not None and self.naming.is_bounded)

    @property
    def is_certain(self) -> bool:
        """Whether a statement was found by which the name keeps from step to step, and not only the last step's."""
        return self.naming is not None and self.naming.is_certain


def holders_of(targets: Sequence[Any], groups: Sequence[int] | None = None) -> list[Held]:
    """Who keeps these objects: the fewest holders that keep all, the likeliest first. Empty where none has a name.

    `groups` says which of the objects came together, such as in one step: what holds them grows by an item for each.
    """
    by_key: dict[tuple[Any, ...], list[tuple[int, Way]]] = {}
    ways_of_all = ways_to(targets)
    growing = _growing(ways_of_all, groups or range(len(targets)))
    for number, ways in enumerate(ways_of_all):
        for way in ways:
            by_key.setdefault(_key_of(way, growing), []).append((number, way))
    codes = program_codes()
    candidates = [_held(key, found, codes) for key, found in by_key.items()]
    chosen: list[Held] = []
    left = set(range(len(targets)))
    while left and candidates:
        best = max(candidates, key=lambda each: _worth(each, left))
        if not left.intersection(best.of):
            break
        chosen.append(best)
        left.difference_update(best.of)
        candidates.remove(best)
    return chosen


def _worth(held: Held, left: set[int]) -> tuple[Any, ...]:
    count = len(left.intersection(held.of))
    return (count > 0, held.is_certain, held.is_program, bool(held.in_error or held.on_ctx), count, -len(held.name))


def _growing(ways_of_all: Sequence[Sequence[Way]], groups: Sequence[int]) -> set[int]:
    """The containers, by `id`, that have an item or more for each of several groups, and none for two of them."""
    items: dict[int, dict[int, set[int]]] = {}
    for ways, group in zip(ways_of_all, groups, strict=True):
        for way in ways:
            for place, step in enumerate(way.steps):
                if _ITEM.fullmatch(step):
                    held = items.setdefault(id(way.links[place]), {})
                    held.setdefault(id(way.links[place + 1]), set()).add(group)
    return {
        container
        for container, held in items.items()
        if len(set().union(*held.values())) > 1 and all(len(each) == 1 for each in held.values())
    }


def _key_of(way: Way, growing: Set[int]) -> tuple[Any, ...]:
    """The name, and the steps up to the container that grows: `history['loss']` of `history['loss'][3]`.

    Where none is known to, it is the first one whose items are counted.
    """
    items = [place for place, step in enumerate(way.steps) if _ITEM.fullmatch(step)]
    first = next((place for place in items if id(way.links[place]) in growing), None)
    if first is None:
        first = next((place for place in items if _NUMBER.fullmatch(way.steps[place])), len(way.steps))
    return (way.name, way.code, way.scope, *way.steps[:first])


def _held(key: tuple[Any, ...], found: list[tuple[int, Way]], codes: Sequence[types.CodeType]) -> Held:
    _, code, scope, *steps = key
    way = found[0][1]
    container = way.links[min(len(steps), len(way.links) - 1)]
    naming, owner, text = _named(way, steps, codes)
    error = next((place for place, link in enumerate(way.links) if isinstance(link, BaseException)), None)
    context = next((place for place, link in enumerate(way.links) if is_function_context(link)), None)
    return Held(
        name=text,
        chain=(way.text, *(type(link).__name__ for link in way.links[:-1])),
        place=naming.place if naming else (source_places.first_line(code) if code else None),
        naming=naming,
        of=sorted({number for number, _ in found}),
        has_room_for_so_many=_has_room_for_so_many(container),
        owner=owner,
        classes=tuple(type(link) for link in way.links),
        on_ctx=_ATTRIBUTE.sub(r"\1", way.steps[context]) if context is not None and context < len(way.steps) else "",
        in_error=_way_up_to(way, error) if error is not None else "",
        is_program=is_of_the_program(code.co_filename) if code else is_program_module(scope),
    )


def _way_up_to(way: Way, place: int) -> str:
    steps = [step for step in way.steps[:place] if not _NUMBER.fullmatch(step)]
    return way.name + "".join(steps)


_Name = tuple[Naming | None, type | None, str]
"""The statement behind a name, the class whose attribute it is, and the name as it is written."""


def _named(way: Way, steps: Sequence[str], codes: Sequence[types.CodeType]) -> _Name:
    """The last name on the way, if the program's own code gives it its value.

    Else it is in a library: then the last name that the program adds to, or the last that anyone does.
    """
    library: list[_Name] = []
    for name in _names_on(way, steps, codes):
        naming = name[0]
        if naming is not None and is_of_the_program(naming.place.file) and (not library or naming.is_certain):
            return name
        library.append(name)
    known = [name for name in library if name[0] is not None]
    return next((name for name in known if name[0] is not None and name[0].is_certain), (known or library)[0])


def _names_on(way: Way, steps: Sequence[str], codes: Sequence[types.CodeType]) -> Iterator[_Name]:
    """The names on a way, the last first."""
    whole = way.name + "".join(steps)
    for place in range(len(steps) - 1, -1, -1):
        holder, key = way.links[place], _key_after(steps, place)
        if isinstance(holder, _CACHE):
            cached = getattr(holder.__wrapped__, "__code__", None)
            has_limit = holder.cache_parameters()["maxsize"] is not None
            naming = naming_lines.of_cache(cached, is_bounded=has_limit) if cached else None
            yield naming, None, holder.__qualname__.rpartition("<locals>.")[2]
        if variable := _VARIABLE.fullmatch(steps[place]):
            code = _code_of(holder)
            naming = naming_lines.of_variable(code, variable[1], key) if code else None
            yield naming, None, naming.written if naming else variable[1] + "".join(steps[place + 1 :])
        elif attribute := _ATTRIBUTE.fullmatch(steps[place]):
            kind = holder if isinstance(holder, type) else type(holder)
            naming = naming_lines.of_attribute(kind, attribute[1], codes, key)
            yield naming, kind, naming.written if naming else whole
    key = _key_after(steps, -1)
    if way.code is not None:
        naming = naming_lines.of_variable(way.code, way.name, key)
    else:
        file = getattr(sys.modules.get(way.scope), "__file__", None)
        naming = naming_lines.of_global(file, way.name, key) if file else None
    yield naming, None, naming.written if naming else whole


def _key_after(steps: Sequence[str], place: int) -> str:
    """The constant by which the next step picks: "'loss'" of `history['loss']`; "" where there is none."""
    following = steps[place + 1] if place + 1 < len(steps) else ""
    return following[1:-1] if following.startswith("['") else ""


def _code_of(holder: Any) -> types.CodeType | None:
    """The code of a function, a frame, or a generator."""
    for name in ("__code__", "f_code", "gi_code", "cr_code"):
        code = getattr(holder, name, None)
        if isinstance(code, types.CodeType):
            return code
    return None


def _has_room_for_so_many(container: Any) -> bool:
    """Whether a container has room for so many, and no more: a deque with a length, a list made full of None."""
    if isinstance(container, deque):
        return container.maxlen is not None
    return isinstance(container, list) and any(each is None for each in container)

"""Who keeps an object alive: the way to it from a name of the program's, found backwards by the collector."""

from __future__ import annotations

import gc
import sys
import types
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dryfit.places import is_of_the_program, is_ours
from dryfit.watching.frames import running_frames, variables_of

_DEEPEST, _WIDEST = 12, 128  # the collector compares all there is with each of so many
_LEVELS_AFTER, _MOST_WAYS = 3, 9
_SEQUENCES = (list, tuple, deque)
_OF_FUNCTIONS = ("__closure__", "__defaults__", "__kwdefaults__")


@dataclass(slots=True)
class Way:
    """A way from a name to an object. `links` has each object on it, the first one what the name stands for.

    `steps` says how each link leads to the next: ".features", "[3]". `code` is the function whose variable the name
    is, `scope` the module's name if it is a global one. It holds the program's objects: let go of it.
    """

    name: str
    code: types.CodeType | None
    scope: str
    links: list[Any]
    steps: list[str]

    @property
    def text(self) -> str:
        return self.name + "".join(self.steps)


def ways_to(targets: Sequence[Any]) -> list[list[Way]]:
    """Of each object, ways to it from the variables of running functions and of modules, the shortest first.

    Each level of the walk lists all of the collector's objects once, for all targets together: about 0.2 s per million.
    """
    return _Search(targets).run()


class _Search:
    def __init__(self, targets: Sequence[Any]) -> None:
        self._targets = list(targets)
        self._variables: dict[int, list[tuple[str, types.CodeType]]] = {}
        self._modules: dict[int, str] = {}
        self._ours: set[int] = {id(self._targets), id(self.__dict__), id(targets)}
        self._parents: dict[int, list[Any]] = {}
        self._ours.add(id(self._parents))

    def run(self) -> list[list[Way]]:
        self._name_variables()
        self._climb()
        return [self._ways_of(target) for target in self._targets]

    def _name_variables(self) -> None:
        for name, module in list(sys.modules.items()):
            names = getattr(module, "__dict__", None)
            if isinstance(names, dict):
                self._modules.setdefault(id(names), name)
        for frame in running_frames():
            if id(frame.f_globals) not in self._modules:  # a script run by hand, under no module's name
                self._modules[id(frame.f_globals)] = str(frame.f_globals.get("__name__", ""))
            if frame.f_code.co_flags & 0x01:  # CO_OPTIMIZED: others have their module's or class's own names
                with variables_of(frame) as values:
                    for name, value in values.items():
                        self._variables.setdefault(id(value), []).append((name, frame.f_code))
                    values.clear()

    def _climb(self) -> None:
        """Find the referrers of the targets, of those, and so on, each level by one call of the collector.

        A few levels after the last of them has been reached from a name of the program's that is enough.
        """
        level = {id(target): target for target in self._targets}
        seen: set[int] = set(level)
        reaches = {number: {number} for number in level}  # which of the targets lie below an object
        unnamed = set(level)
        levels_left = _DEEPEST
        while levels_left:
            levels_left -= 1
            for number in level:
                if self._is_named(number):
                    unnamed -= reaches[number]
            if not unnamed:
                levels_left = min(levels_left, _LEVELS_AFTER)
            open_ends = [each for each in level.values() if not self._is_root(each)][:_WIDEST]
            if not open_ends:
                break
            self._ours |= {id(level), id(open_ends), id(level.values())}
            referrers = gc.get_referrers(*open_ends)
            self._ours.add(id(referrers))
            wanted = {id(each) for each in open_ends}
            above: dict[int, Any] = {}
            self._ours.add(id(above))
            for referrer in referrers:
                if self._is_ours(referrer):
                    continue
                for child in {id(each) for each in gc.get_referents(referrer)} & wanted:
                    parents = self._parents.setdefault(child, [])
                    self._ours.add(id(parents))
                    parents.append(referrer)
                    reaches.setdefault(id(referrer), set()).update(reaches[child])
                if id(referrer) not in seen:
                    seen.add(id(referrer))
                    above[id(referrer)] = referrer
            del referrers
            level = above

    def _is_named(self, number: int) -> bool:
        """Whether the program itself has a name for this object, or it is all the names of one of its modules."""
        if any(is_of_the_program(code.co_filename) for _, code in self._variables.get(number, ())):
            return True
        return number in self._modules and is_program_module(self._modules[number])

    def _is_root(self, value: Any) -> bool:
        return id(value) in self._modules and isinstance(value, dict)

    def _is_ours(self, referrer: Any) -> bool:
        if id(referrer) in self._ours:
            return True
        if isinstance(referrer, types.FrameType):
            return is_ours(referrer.f_code.co_filename)
        return isinstance(referrer, Way) or referrer is self

    def _ways_of(self, target: Any) -> list[Way]:
        """Breadth first over the parents that the climb found."""
        found: list[Way] = []
        seen = {id(target)}
        level: list[tuple[Any, list[Any], list[str]]] = [(target, [target], [])]
        for _ in range(_DEEPEST + 1):
            above = []
            for value, links, steps in level:
                for name, code in self._variables.get(id(value), ()):
                    found.append(Way(name, code, "", links, steps))
                for parent in self._parents.get(id(value), ()):
                    if id(parent) in self._modules and isinstance(parent, dict):
                        found += [
                            Way(key, None, self._modules[id(parent)], links, steps)
                            for key in _keys_of(parent, value)
                            if isinstance(key, str)
                        ]
                    elif id(parent) not in seen:
                        seen.add(id(parent))
                        above.append((parent, [parent, *links], [_step(parent, value), *steps]))
            level = above
            if len(found) >= _MOST_WAYS or not level:
                break
        found.sort(key=lambda way: not _is_programs(way))  # what all modules reach, such as loggers, has many ways
        return [_tidied(way) for way in found[:_MOST_WAYS]]


def is_program_module(name: str) -> bool:
    """Whether a module is of the program, and not of a library."""
    file = getattr(sys.modules.get(name), "__file__", None)
    return bool(file) and is_of_the_program(str(file))


def _is_programs(way: Way) -> bool:
    return is_of_the_program(way.code.co_filename) if way.code is not None else is_program_module(way.scope)


def _step(parent: Any, child: Any) -> str:
    """How a program writes the way from one object to the one it holds; "" where it does not."""
    if isinstance(parent, dict):
        keys = _keys_of(parent, child)
        if not keys:
            return "{...}" if any(key is child for key in dict.keys(parent)) else ""
        # Others may do anything when asked for their text: a tensor is computed and printed.
        return f"[{keys[0]!r:.40}]" if type(keys[0]) in (str, int, float, bool) else f"[{type(keys[0]).__name__}]"
    if isinstance(parent, _SEQUENCES):
        places = (place for place, each in enumerate(parent) if each is child)
        return f"[{next(places, '...')}]"
    if isinstance(parent, (set, frozenset)):
        return "{...}"
    if isinstance(parent, types.CellType):
        return ""
    if isinstance(parent, types.MethodType):
        return ".__self__" if parent.__self__ is child else ""
    if isinstance(parent, types.FunctionType):
        return next((f".{name}" for name in _OF_FUNCTIONS if getattr(parent, name) is child), "")
    if isinstance(parent, types.FrameType):
        return _variable_step(parent, child)
    if isinstance(parent, types.TracebackType):
        return ".tb_frame" if parent.tb_frame is child else ".tb_next"
    if isinstance(parent, BaseException) and parent.__traceback__ is child:
        return ".__traceback__"
    frame = getattr(type(parent), "gi_frame", None) and getattr(parent, "gi_frame", None)
    if isinstance(frame, types.FrameType):
        return _variable_step(frame, child)
    return _attribute_step(parent, child)


def _variable_step(frame: types.FrameType, child: Any) -> str:
    with variables_of(frame) as values:
        names = [name for name, value in values.items() if value is child]
        values.clear()
    return f".<{names[0]}>" if names else ""


def _attribute_step(parent: Any, child: Any) -> str:
    try:
        attributes = object.__getattribute__(parent, "__dict__")
    except AttributeError:
        attributes = {}
    if attributes is child:
        return ""
    for name, value in attributes.items():
        if value is child:
            return f".{name}"
    for kind in type(parent).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots):
            descriptor = kind.__dict__.get(name)
            if isinstance(descriptor, types.MemberDescriptorType):
                try:
                    if descriptor.__get__(parent) is child:
                        return f".{name}"
                except AttributeError:
                    continue
    return ""


def _keys_of(mapping: dict[Any, Any], value: Any) -> list[Any]:
    return [key for key, each in dict.items(mapping) if each is value]


def _tidied(way: Way) -> Way:
    """An attribute's dictionary is no step of its own, nor a closure's cell: `.x`, and `.<x>` for a variable."""
    links, steps = list(way.links), list(way.steps)
    for place in range(len(steps) - 2, -1, -1):
        function = links[place]
        if isinstance(function, types.FunctionType) and steps[place][1:] in _OF_FUNCTIONS:
            kept = links[place + 2]  # after the tuple or dictionary: a cell, or a default itself
            name = next((name for name, each in _variables_kept_by(function) if each is kept), "")
            after = place + (3 if isinstance(kept, types.CellType) else 2)
            steps[place:after] = [f".<{name}>" if name else ""]
            del links[place + 1 : after]
    for place in range(len(steps) - 1, 0, -1):
        holder, names = links[place - 1], links[place]
        if steps[place - 1] == "" and isinstance(names, dict) and _is_dict_of(holder, names):
            key = steps[place][2:-2] if steps[place].startswith("['") else steps[place]
            steps[place - 1 : place + 1] = [f".{key}"]
            del links[place]
    return Way(way.name, way.code, way.scope, links, steps)


def _variables_kept_by(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function keeps between its calls, by the names it has there: the cells of others' variables, defaults."""
    code = function.__code__
    yield from zip(code.co_freevars, function.__closure__ or (), strict=False)
    defaults = function.__defaults__ or ()
    yield from zip(code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount], defaults, strict=False)
    yield from (function.__kwdefaults__ or {}).items()


def _is_dict_of(holder: Any, names: dict[Any, Any]) -> bool:
    if isinstance(holder, type):  # its `__dict__` is a view of it
        return True
    try:
        return object.__getattribute__(holder, "__dict__") is names
    except AttributeError:
        return False

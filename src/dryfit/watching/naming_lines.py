"""The line that gives a name what it holds: the statement that assigns to it, adds to it or appends to it.

Read from the source by its syntax, so that the line is right also where it runs no more when the growth is seen.
"""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Iterable
from dataclasses import dataclass

from dryfit.findings import Place
from dryfit.places import is_of_the_program
from dryfit.watching import source_places, statements
from dryfit.watching.source_trees import FUNCTIONS, LOOPS, classes_of, place_of, scope_of, tree_of, with_surroundings


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """A statement that a name gets its value by.

    `adds` says that it adds to what is there, `is_carried` that the value before goes into the next one, `sums` that it
    does so by arithmetic. `is_bounded` says that the same loop takes away from it, or begins it anew. `written` is the
    name as the statement has it: `self.features`, `history["loss"]`.
    """

    place: Place
    adds: bool
    sums: bool
    is_carried: bool
    is_bounded: bool
    written: str = ""

    @property
    def is_certain(self) -> bool:
        """Whether the name keeps from step to step by it, and not only the last step's."""
        return self.adds or self.is_carried or self.sums


def of_variable(code: types.CodeType, name: str, key: str = "") -> Naming | None:
    """How a function's variable gets what it holds, also by functions within it.

    `key` is the constant, as it is written, by which what counts is picked of it: of `history["lr"].append(...)`
    nothing comes into `history["loss"]`. So it is with the others below.
    """
    tree = tree_of(code.co_filename)
    scope = scope_of(tree, code) if tree else None
    return _best(code.co_filename, scope, name, key) if scope is not None else None


def of_global(file: str, name: str, key: str = "") -> Naming | None:
    """How a module's name gets what it holds, by the module's own statements or any function's in it."""
    tree = tree_of(file)
    return _best(file, tree, name, key) if tree else None


def of_attribute(owner: type, attribute: str, codes: Iterable[types.CodeType], key: str = "") -> Naming | None:
    """How an attribute gets what it holds: by its class's methods, else by the files of functions that run now."""
    found: list[Naming] = []
    for kind in owner.__mro__:
        file = _file_of(kind)
        for node in classes_of(file) if file else ():
            if node.name == kind.__name__:
                naming = _best(file, node, attribute, key, attribute=True)
                found += [naming] if naming else []
    if not any(each.adds or each.is_carried for each in found):
        for file in dict.fromkeys(code.co_filename for code in codes):
            tree = tree_of(file)
            naming = _best(file, tree, attribute, key, attribute=True) if tree else None
            found += [naming] if naming else []
    return max(found, key=_worth, default=None)


def of_cache(code: types.CodeType, *, is_bounded: bool) -> Naming:
    """A function whose results `functools.lru_cache` keeps, with the arguments they were made of."""
    return Naming(place=source_places.first_line(code), adds=True, sums=False, is_carried=False, is_bounded=is_bounded)


def _file_of(kind: type) -> str:
    try:
        file = inspect.getsourcefile(kind) or ""
    except (TypeError, OSError):
        return ""
    return file if is_of_the_program(file) or not kind.__module__.startswith(("torch.", "builtins")) else ""


def _best(file: str, scope: ast.AST, name: str, key: str = "", *, attribute: bool = False) -> Naming | None:
    """The statement most likely to be what makes the name's value grow: in a loop, adding to it, the last of equals."""
    found = [
        (statement, around)
        for statement, around in with_surroundings(scope)
        if statements.gives(statement, name, attribute) and not statements.cuts(statement, name, attribute)
    ]
    with_key = [each for each in found if not statements.picks_another(each[0], name, attribute, key)]
    namings = (_naming(file, scope, statement, around, name, attribute) for statement, around in with_key or found)
    return max(namings, key=_worth, default=None)


def _worth(naming: Naming) -> tuple[bool, bool, int]:
    return naming.adds or naming.sums, naming.is_carried, naming.place.line


def _naming(
    file: str, scope: ast.AST, statement: ast.stmt, around: list[ast.AST], name: str, attribute: bool
) -> Naming:
    loops = [node for node in around if isinstance(node, LOOPS)]
    functions = [node for node in around if isinstance(node, FUNCTIONS)]
    within = (loops or functions or around)[-1]
    adds = statements.adds(statement, name, attribute)
    value: ast.AST | None = getattr(statement, "value", None)
    reads = value is not None and statements.mentions(value, name, attribute)
    sums = isinstance(statement, ast.AugAssign) or (
        value is not None and reads and statements.is_sum(value, name, attribute)
    )
    is_bounded = statements.has_room(within, name, attribute) or any(
        statements.is_bounded(statement, each, name, attribute, comes_again=bool(loops) or attribute)
        for each in (within, *_methods_called(within, scope))
    )
    return Naming(
        place=place_of(file, statement, functions[-1].name if functions else ""),
        adds=adds,
        sums=sums,
        is_carried=not adds
        and bool(sums or (reads and (loops or functions)) or statements.is_read_before(statement, loops, name)),
        is_bounded=is_bounded,
        written=statements.written(statement, name, attribute),
    )


def _methods_called(within: ast.AST, scope: ast.AST) -> list[ast.AST]:
    """The methods of a class that these statements of its call by `self.`: what they take away is taken away here."""
    if not isinstance(scope, ast.ClassDef):
        return []
    called = {
        node.func.attr
        for node in ast.walk(within)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "self"
    }
    return [node for node in scope.body if isinstance(node, FUNCTIONS) and node.name in called]

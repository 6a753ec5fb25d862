"""The line that gives a name what it holds: the statement that assigns to it, adds to it or appends to it.

Read from the source by its syntax, so that the line is right also where it runs no more when the growth is seen.
"""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dryfit.findings import Place
from dryfit.places import is_of_the_program

_ADDING = frozenset({"append", "extend", "insert", "add", "update", "setdefault", "appendleft", "put", "push"})
_TAKING = frozenset({"pop", "popleft", "popitem", "clear", "remove", "discard", "detach_"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


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


def of_variable(code: types.CodeType, name: str) -> Naming | None:
    """How a function's variable gets what it holds, also by functions within it."""
    tree = _tree(code.co_filename)
    scope = _scope_of(tree, code) if tree else None
    return _best(code.co_filename, scope, name) if scope is not None else None


def of_global(file: str, name: str) -> Naming | None:
    """How a module's name gets what it holds, by the module's own statements or any function's in it."""
    tree = _tree(file)
    return _best(file, tree, name) if tree else None


def of_attribute(owner: type, attribute: str, codes: Iterable[types.CodeType]) -> Naming | None:
    """How an attribute gets what it holds: by its class's methods, else by the files of functions that run now."""
    found: list[Naming] = []
    for kind in owner.__mro__:
        file = _file_of(kind)
        tree = _tree(file) if file else None
        for node in ast.walk(tree) if tree else ():
            if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
                naming = _best(file, node, attribute, attribute=True)
                found += [naming] if naming else []
    if not any(each.adds or each.is_carried for each in found):
        for file in dict.fromkeys(code.co_filename for code in codes):
            tree = _tree(file)
            naming = _best(file, tree, attribute, attribute=True) if tree else None
            found += [naming] if naming else []
    return max(found, key=_worth, default=None)


def of_call(code: types.CodeType, function: str) -> Place | None:
    """Where a function calls another by this last name: the last such call."""
    return _last(code, lambda node: isinstance(node, ast.Call) and _last_name(node.func) == function)


def of_method_call(code: types.CodeType, method: str, owner: str) -> Place | None:
    """Where a function calls a method of something whose name has this in it: the last such call."""
    return _last(
        code,
        lambda node: (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == method
            and owner in _last_name(node.func.value).lower()
        ),
    )


def region_around(code: types.CodeType, line: int, word: str) -> tuple[Place, bool] | None:
    """The innermost `with` around a line whose expression has this word in it, and whether there is a loop within it.

    The loop counts if the line is in it.
    """
    scope = _scope_of(_tree(code.co_filename), code)
    found: list[tuple[Place, bool]] = []
    for node in ast.walk(scope) if scope is not None else ():
        if not isinstance(node, (ast.With, ast.AsyncWith)) or not _is_around(node, line):
            continue
        if any(word in ast.unparse(item.context_expr) for item in node.items):
            loops = any(isinstance(each, _LOOPS) and _is_around(each, line) for each in ast.walk(node))
            found.append((_place(code.co_filename, node, code.co_name), loops))
    return max(found, key=lambda each: each[0].line, default=None)


def _is_around(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def of_keyword(code: types.CodeType, keyword: str) -> Place | None:
    """Where a function passes this keyword to any call: the last such call."""
    return _last(code, lambda node: isinstance(node, ast.Call) and any(each.arg == keyword for each in node.keywords))


def of_attribute_assignment(code: types.CodeType, attribute: str) -> Place | None:
    """Where a function assigns to an attribute of anything: the last such statement."""
    return _last(
        code,
        lambda node: (
            isinstance(node, ast.Assign)
            and any(isinstance(target, ast.Attribute) and target.attr == attribute for target in node.targets)
        ),
    )


def _last(code: types.CodeType, is_wanted: Callable[[ast.AST], bool]) -> Place | None:
    scope = _scope_of(_tree(code.co_filename), code)
    found = [node for node in (ast.walk(scope) if scope is not None else ()) if is_wanted(node)]
    last = max(found, key=lambda node: int(getattr(node, "lineno", 0)), default=None)
    return None if last is None else _place(code.co_filename, last, code.co_name)


def first_line(code: types.CodeType) -> Place:
    """Where a function begins, for want of a better line."""
    file, line = code.co_filename, max(code.co_firstlineno, 1)
    return Place(file=file, line=line, function=code.co_name, text=linecache.getline(file, line).strip())


@functools.lru_cache(maxsize=64)
def _tree(file: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _file_of(kind: type) -> str:
    try:
        file = inspect.getsourcefile(kind) or ""
    except (TypeError, OSError):
        return ""
    return file if is_of_the_program(file) or not kind.__module__.startswith(("torch.", "builtins")) else ""


def _scope_of(tree: ast.Module | None, code: types.CodeType) -> ast.AST | None:
    if tree is None or code.co_name == "<module>":
        return tree
    for node in ast.walk(tree):
        if isinstance(node, (*_FUNCTIONS, ast.Lambda)):
            lines = [node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))]
            name = getattr(node, "name", "<lambda>")
            if name == code.co_name and code.co_firstlineno in lines:
                return node
    return None


def _best(file: str, scope: ast.AST, name: str, *, attribute: bool = False) -> Naming | None:
    """The statement most likely to be what makes the name's value grow: in a loop, adding to it, the last of equals."""
    found = [
        _naming(file, statement, around, name, attribute)
        for statement, around in _with_surroundings(scope)
        if _gives(statement, name, attribute) and not _cuts(statement, name, attribute)
    ]
    return max(found, key=_worth, default=None)


def _worth(naming: Naming) -> tuple[bool, bool, int]:
    return naming.adds or naming.sums, naming.is_carried, naming.place.line


def _with_surroundings(scope: ast.AST) -> Iterator[tuple[ast.stmt, list[ast.AST]]]:
    """Each statement, with what is around it from the scope inwards."""
    left: list[tuple[ast.AST, list[ast.AST]]] = [(scope, [])]
    while left:
        node, around = left.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                yield child, [*around, node]
            left.append((child, [*around, node]))


def _cuts(statement: ast.stmt, name: str, attribute: bool) -> bool:
    """Whether it gives the name its own value without what is behind it: `name = name.detach()`, `name = name[-9:]`."""
    value = getattr(statement, "value", None)
    if not _assigns(statement, name, attribute) or value is None:
        return False
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        return value.func.attr in ("detach", "item") and _mentions(value.func.value, name, attribute)
    return isinstance(value, ast.Subscript) and _is_name(value, name, attribute)


def _gives(statement: ast.stmt, name: str, attribute: bool) -> bool:
    return bool(_adds(statement, name, attribute) or _assigns(statement, name, attribute))


def _naming(file: str, statement: ast.stmt, around: list[ast.AST], name: str, attribute: bool) -> Naming:
    loops = [node for node in around if isinstance(node, _LOOPS)]
    functions = [node for node in around if isinstance(node, _FUNCTIONS)]
    within = (loops or functions or around)[-1]
    adds = _adds(statement, name, attribute)
    value: ast.AST | None = getattr(statement, "value", None)
    reads = value is not None and _mentions(value, name, attribute)
    sums = isinstance(statement, ast.AugAssign) or (value is not None and reads and _is_sum(value, name, attribute))
    return Naming(
        place=_place(file, statement, functions[-1].name if functions else ""),
        adds=adds,
        sums=sums,
        is_carried=not adds
        and bool(sums or (reads and (loops or functions)) or _is_read_before(statement, loops, name)),
        is_bounded=_is_bounded(statement, within, name, attribute, comes_again=bool(loops) or attribute),
        written=_written(statement, name, attribute),
    )


def _is_bounded(statement: ast.stmt, within: ast.AST, name: str, attribute: bool, *, comes_again: bool) -> bool:
    """Whether the same loop or function takes away what this statement adds; `comes_again` says that it runs again."""
    if _goes_round(statement, name, attribute):
        return True
    return any(
        not _only_at_first(around, name)
        and (_takes(other, name, attribute) or (comes_again and _begins_anew(other, name, attribute)))
        for other, around in _with_surroundings(within)
        if other is not statement
    )


def _adds(statement: ast.stmt, name: str, attribute: bool) -> bool:
    """Whether it puts something into what the name holds: `name.append(...)`, `name[k] = ...`, `name += [...]`."""
    if isinstance(statement, (ast.Expr, ast.Assign, ast.Return)) and any(
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in _ADDING
        and _is_name(call.func.value, name, attribute)
        for call in ast.walk(statement)
    ):
        return True
    if isinstance(statement, ast.AugAssign) and isinstance(statement.value, (ast.List, ast.Tuple, ast.ListComp)):
        return _is_name(statement.target, name, attribute)
    return any(
        isinstance(target, ast.Subscript) and _is_name(target, name, attribute) for target in _targets(statement)
    )


def _assigns(statement: ast.stmt, name: str, attribute: bool) -> bool:
    return any(_is_name(target, name, attribute) for target in _targets(statement))


def _takes(statement: ast.stmt, name: str, attribute: bool) -> bool:
    """Whether it takes away from what the name holds: `name.pop()`, `del name[0]`, `name[i % n] =`, `name[-9:]`."""
    if isinstance(statement, ast.Delete):
        return any(_is_name(target, name, attribute) for target in statement.targets)
    value = getattr(statement, "value", None)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        function = value.func
        if function.attr in _TAKING and _is_name(function.value, name, attribute):
            return True
    return _goes_round(statement, name, attribute) or _cuts(statement, name, attribute)


def _begins_anew(statement: ast.stmt, name: str, attribute: bool) -> bool:
    """Whether it gives the name another value, that does not come from the one it had: `name = []`."""
    value = statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
    return (
        value is not None
        and not _mentions(value, name, attribute)
        and any(
            not isinstance(target, ast.Subscript) and _is_name(target, name, attribute)
            for target in _targets(statement)
        )
    )


def _written(statement: ast.stmt, name: str, attribute: bool) -> str:
    """The name as the statement writes it, without what changes from time to time: `kept` of `kept[number] = ...`."""
    for node in ast.walk(statement):
        if isinstance(node, ast.expr) and _is_name(node, name, attribute):  # the outermost is the first
            while isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant):
                node = node.value
            return ast.unparse(node).replace("'", '"')
    return name


def _goes_round(statement: ast.stmt, name: str, attribute: bool) -> bool:
    """Whether it writes to a place that comes round again: `name[i % n] = ...`."""
    return any(
        isinstance(target, ast.Subscript)
        and _is_name(target, name, attribute)
        and any(isinstance(node, ast.Mod) for node in ast.walk(target.slice))
        for target in _targets(statement)
    )


def _only_at_first(around: list[ast.AST], name: str) -> bool:
    """Whether a statement runs only the first time: below `if name is None`, `if not hasattr(...)`, `if step == 0`."""
    return any(isinstance(node, ast.If) and _is_first_time(node.test, name) for node in around)


def _is_first_time(test: ast.expr, name: str) -> bool:
    nodes = list(ast.walk(test))
    if any(isinstance(node, (ast.Mod, ast.Gt, ast.GtE)) for node in nodes):
        return False
    asks_for_it = any(
        _is_name(node, name, how) for node in nodes if isinstance(node, ast.expr) for how in (False, True)
    )
    has_attribute = any(
        isinstance(node, ast.Call) and _last_name(node.func) in ("hasattr", "getattr") for node in nodes
    )
    return asks_for_it or has_attribute or any(isinstance(node, ast.Eq) for node in nodes)


def _targets(statement: ast.stmt) -> list[ast.expr]:
    given = (
        statement.targets
        if isinstance(statement, ast.Assign)
        else [statement.target]
        if isinstance(statement, (ast.AugAssign, ast.AnnAssign, ast.For, ast.AsyncFor))
        else []
    )
    found: list[ast.expr] = []
    left = list(given)
    while left:
        target = left.pop()
        if isinstance(target, (ast.Tuple, ast.List)):
            left += target.elts
        elif isinstance(target, ast.Starred):
            left.append(target.value)
        else:
            found.append(target)
    return found


def _is_name(node: ast.expr, name: str, attribute: bool) -> bool:
    while isinstance(node, ast.Subscript):
        node = node.value
    if attribute:
        return isinstance(node, ast.Attribute) and node.attr == name
    return isinstance(node, ast.Name) and node.id == name


def _mentions(node: ast.AST, name: str, attribute: bool) -> bool:
    return any(isinstance(each, ast.expr) and _is_name(each, name, attribute) for each in ast.walk(node))


def _is_sum(value: ast.AST, name: str, attribute: bool) -> bool:
    return any(
        isinstance(node, ast.BinOp) and _mentions(node, name, attribute) for node in ast.walk(value)
    ) and not any(isinstance(node, ast.Call) and _mentions(node, name, attribute) for node in ast.walk(value))


def _is_read_before(statement: ast.stmt, loops: Sequence[ast.AST], name: str) -> bool:
    """Whether the loop reads the name above the line that assigns to it, so that each round reads the last one's."""
    if not loops:
        return False
    return any(
        isinstance(node, ast.Name)
        and node.id == name
        and isinstance(node.ctx, ast.Load)
        and node.lineno < statement.lineno
        for node in ast.walk(loops[-1])
    )


def _last_name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _place(file: str, node: Any, function: str) -> Place:
    return Place(
        file=file,
        line=node.lineno,
        column=node.col_offset + 1,
        end_line=node.end_lineno or 0,
        end_column=(node.end_col_offset or 0) + 1,
        function=function,
        text=linecache.getline(file, node.lineno).strip(),
    )

"""The line of a function by which it does something: calls, passes a keyword, assigns, lies within a `with`."""

from __future__ import annotations

import ast
import linecache
import types
from collections.abc import Callable

from dryfit.findings import Place
from dryfit.watching.source_trees import LOOPS, last_name, place_of, scope_of, tree_of


def of_call(code: types.CodeType, function: str) -> Place | None:
    """Where a function calls another by this last name: the last such call."""
    return _last(code, lambda node: isinstance(node, ast.Call) and last_name(node.func) == function)


def of_method_call(code: types.CodeType, method: str, owner: str) -> Place | None:
    """Where a function calls a method of something whose name has this in it: the last such call."""
    return _last(
        code,
        lambda node: (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == method
            and owner in last_name(node.func.value).lower()
        ),
    )


def region_around(code: types.CodeType, line: int, word: str) -> tuple[Place, bool] | None:
    """The innermost `with` around a line whose expression has this word in it, and whether there is a loop within it.

    The loop counts if the line is in it.
    """
    scope = scope_of(tree_of(code.co_filename), code)
    found: list[tuple[Place, bool]] = []
    for node in ast.walk(scope) if scope is not None else ():
        if not isinstance(node, (ast.With, ast.AsyncWith)) or not _is_around(node, line):
            continue
        if any(word in ast.unparse(item.context_expr) for item in node.items):
            loops = any(isinstance(each, LOOPS) and _is_around(each, line) for each in ast.walk(node))
            found.append((place_of(code.co_filename, node, code.co_name), loops))
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
    scope = scope_of(tree_of(code.co_filename), code)
    found = [node for node in (ast.walk(scope) if scope is not None else ()) if is_wanted(node)]
    last = max(found, key=lambda node: int(getattr(node, "lineno", 0)), default=None)
    return None if last is None else place_of(code.co_filename, last, code.co_name)


def first_line(code: types.CodeType) -> Place:
    """Where a function begins, for want of a better line."""
    file, line = code.co_filename, max(code.co_firstlineno, 1)
    return Place(file=file, line=line, function=code.co_name, text=linecache.getline(file, line).strip())

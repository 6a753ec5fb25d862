"""The syntax of the program's files, and where in them something stands."""

from __future__ import annotations

import ast
import functools
import linecache
import types
from collections.abc import Iterator
from typing import Any

from dryfit.findings import Place

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOPS = (ast.For, ast.AsyncFor, ast.While)


@functools.lru_cache(maxsize=64)
def tree_of(file: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


@functools.lru_cache(maxsize=64)
def classes_of(file: str) -> tuple[ast.ClassDef, ...]:
    tree = tree_of(file)
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)) if tree else ()


def scope_of(tree: ast.Module | None, code: types.CodeType) -> ast.AST | None:
    if tree is None or code.co_name == "<module>":
        return tree
    for node in ast.walk(tree):
        if isinstance(node, (*FUNCTIONS, ast.Lambda)):
            lines = [node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))]
            name = getattr(node, "name", "<lambda>")
            if name == code.co_name and code.co_firstlineno in lines:
                return node
    return None


def with_surroundings(scope: ast.AST) -> Iterator[tuple[ast.stmt, list[ast.AST]]]:
    """Each statement, with what is around it from the scope inwards."""
    left: list[tuple[ast.AST, list[ast.AST]]] = [(scope, [])]
    while left:
        node, around = left.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                yield child, [*around, node]
            left.append((child, [*around, node]))


def last_name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def place_of(file: str, node: Any, function: str) -> Place:
    return Place(
        file=file,
        line=node.lineno,
        column=node.col_offset + 1,
        end_line=node.end_lineno or 0,
        end_column=(node.end_col_offset or 0) + 1,
        function=function,
        text=linecache.getline(file, node.lineno).strip(),
    )

"""The syntax tree with its parents, and what lies around a node."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SHARED = (ast.expr_context, ast.operator, ast.cmpop, ast.boolop, ast.unaryop)
BLOCKS = ("body", "orelse", "finalbody")

Parents = dict[ast.AST, ast.AST]


@dataclass(frozen=True, slots=True)
class Syntax:
    """A file's tree, walked once: for each node the node it is part of, and the nodes of each type in source order."""

    module: ast.Module
    parents: Parents
    nodes: dict[type[ast.AST], list[ast.AST]]

    def each(self, *types: type[ast.AST]) -> list[Any]:
        """The nodes of some types; the types in the order given, the nodes of one type in the order of the source."""
        return [node for each in types for node in self.nodes.get(each, ())]


def walk_once(module: ast.Module) -> Syntax:
    """The tree of a module."""
    parents: Parents = {}
    nodes: dict[type[ast.AST], list[ast.AST]] = {}
    todo: list[ast.AST] = [module]
    while todo:
        node = todo.pop()
        nodes.setdefault(type(node), []).append(node)
        children = []
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, ast.AST):
                children.append(value)
            elif isinstance(value, list):
                children.extend(each for each in value if isinstance(each, ast.AST))
        # Contexts and operators are one object for the whole tree: no place of their own.
        children = [each for each in children if not isinstance(each, _SHARED)]
        parents.update(dict.fromkeys(children, node))
        todo.extend(reversed(children))
    return Syntax(module, parents, nodes)


def around(parents: Parents, node: ast.AST) -> Iterator[ast.AST]:
    """The nodes around `node`, innermost first, up to the function or module it runs in, which is the last one."""
    while node in parents:
        node = parents[node]
        yield node
        if isinstance(node, (*FUNCTIONS, ast.Lambda, ast.Module)):
            return


def statement_of(parents: Parents, node: ast.AST) -> ast.stmt:
    """The innermost statement that `node` is, or is part of."""
    while not isinstance(node, ast.stmt):
        node = parents[node]
    return node


def function_of(parents: Parents, node: ast.AST) -> Function | None:
    """The function whose body `node` runs in; a lambda belongs to the function around it."""
    while node in parents:
        node = parents[node]
        if isinstance(node, FUNCTIONS):
            return node
    return None


def class_of(parents: Parents, node: ast.AST) -> ast.ClassDef | None:
    """The innermost class around `node`."""
    while node in parents:
        node = parents[node]
        if isinstance(node, ast.ClassDef):
            return node
    return None


def loops_around(parents: Parents, node: ast.AST) -> list[ast.AST]:
    """The loops that repeat `node` within its function, innermost first; comprehensions are loops."""
    found: list[ast.AST] = []
    inner = node
    for outer in around(parents, node):
        if isinstance(outer, LOOPS):
            # What a loop iterates over, and its else, run once.
            if inner is not getattr(outer, "iter", None) and inner not in outer.orelse:
                found.append(outer)
        elif isinstance(outer, COMPREHENSIONS) and inner is not outer.generators[0]:
            found.append(outer)
        inner = outer
    return found


def loop_of(parents: Parents, node: ast.AST) -> ast.AST | None:
    """The innermost loop that repeats `node`."""
    return next(iter(loops_around(parents, node)), None)


def within(parents: Parents, node: ast.AST, outer: ast.AST | None) -> bool:
    """Whether `node` is `outer` or lies in it."""
    while node is not outer:
        if node not in parents:
            return False
        node = parents[node]
    return True


def blocks_of(statement: ast.AST) -> Iterator[list[ast.stmt]]:
    """The lists of statements directly in a compound statement."""
    for name in BLOCKS:
        block = getattr(statement, name, None)
        if isinstance(block, list) and block:
            yield block
    for handler in getattr(statement, "handlers", ()):
        yield handler.body
    for case in getattr(statement, "cases", ()):
        yield case.body


def block_around(parents: Parents, statement: ast.stmt) -> list[ast.stmt]:
    """The list of statements that `statement` stands in."""
    parent = parents.get(statement)
    if parent is not None:
        for block in blocks_of(parent):
            if any(each is statement for each in block):
                return block
    return [statement]


def own(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes in `node` that run when it runs: not the bodies of functions and classes defined in it."""
    todo = list(ast.iter_child_nodes(node))
    while todo:
        each = todo.pop()
        yield each
        if not isinstance(each, SCOPES):
            todo.extend(ast.iter_child_nodes(each))


def exclusive(parents: Parents, one: ast.AST, other: ast.AST) -> bool:
    """Whether the two never run in the same pass, for they lie in two branches of one `if` or `try`."""
    outer_of_one = {one: None, **dict.fromkeys(around(parents, one))}
    inner = other
    for outer in around(parents, other):
        if outer in outer_of_one:
            if not isinstance(outer, (ast.If, ast.IfExp, ast.Match)):
                return False
            return _branch(outer, parents, one) != _branch(outer, parents, inner)
        inner = outer
    return False


def _branch(outer: ast.AST, parents: Parents, node: ast.AST) -> str:
    while parents[node] is not outer:
        node = parents[node]
    if isinstance(outer, ast.Match):
        return str(node.__dict__.get("pattern", node))
    for name in ("body", "orelse", "test"):
        part = getattr(outer, name)
        if node is part or (isinstance(part, list) and any(node is each for each in part)):
            return name
    return ""


def qualified_name(parents: Parents, node: ast.AST) -> str:
    """The name of the function that `node` runs in, with its classes: `Trainer.fit`."""
    names = []
    while node in parents:
        node = parents[node]
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            names.append(node.name)
    return ".".join(reversed(names))

"""What gives names their values: assignments, loops, `with`, parameters, and methods that work in place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dryfit.linting.flow import tree
from dryfit.linting.flow.names import reference

# Methods that change a tensor's graph where it stands: as good as an assignment.
_IN_PLACE = {"detach_", "requires_grad_"}


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """One place that gives a name its value.

    `index` is the position in a tuple that is taken apart, -1 if there is none. `value` is None where the value is not
    written: a parameter, an import. `how`: assign, add (`+=` and its kin), for, with, parameter, define, in-place.
    """

    name: str
    node: ast.AST
    value: ast.expr | None
    how: str
    index: int = -1


def targets(target: ast.AST, value: ast.expr | None, node: ast.AST, how: str, index: int = -1) -> Iterator[Binding]:
    """The bindings of an assignment's left side."""
    if isinstance(target, (ast.Tuple, ast.List)):
        for position, each in enumerate(target.elts):
            if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
                yield from targets(each, value.elts[position], node, how)
            else:
                yield from targets(each, value, node, how, position)
    elif isinstance(target, ast.Starred):
        yield from targets(target.value, value, node, how, index)
    elif name := reference(target):
        yield Binding(name, node, value, how, index)


def of_statement(statement: ast.AST) -> Iterator[Binding]:
    """The bindings a statement makes itself, without the statements in it."""
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            yield from targets(target, statement.value, statement, "assign")
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        yield from targets(statement.target, statement.value, statement, "assign")
    elif isinstance(statement, ast.AugAssign):
        yield from targets(statement.target, statement.value, statement, "add")
    elif isinstance(statement, (ast.For, ast.AsyncFor)):
        yield from targets(statement.target, statement.iter, statement, "for")
    elif isinstance(statement, (ast.With, ast.AsyncWith)):
        for item in statement.items:
            if item.optional_vars is not None:
                yield from targets(item.optional_vars, item.context_expr, statement, "with")
    elif isinstance(statement, (*tree.FUNCTIONS, ast.ClassDef)):
        yield Binding(statement.name, statement, None, "define")
    elif isinstance(statement, ast.Expr) and (changed := _changed_in_place(statement.value)) is not None:
        yield from targets(changed, statement.value, statement, "in-place")
    if not isinstance(statement, (*tree.FUNCTIONS, ast.ClassDef)):
        for each in _expressions(statement):
            if isinstance(each, ast.NamedExpr):
                yield from targets(each.target, each.value, statement, "assign")


def _changed_in_place(value: ast.expr) -> ast.expr | None:
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _IN_PLACE:
        return value.func.value
    return None


def _expressions(statement: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(statement):
        if not isinstance(child, (ast.stmt, ast.ExceptHandler)) and type(child).__name__ != "match_case":
            yield from ast.walk(child)


def of_parameters(function: tree.Function | ast.Lambda) -> Iterator[Binding]:
    """The parameters of a function."""
    arguments = function.args
    for each in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]:
        if each is not None:
            yield Binding(each.arg, each, None, "parameter")

"""Whether a model is in eval() mode where it is called."""

from __future__ import annotations

import ast

from dryfit.linting.flow import tree
from dryfit.linting.flow.names import is_false, reference
from dryfit.linting.flow.tensors import Tensors


def ruling_eval(at: ast.AST, model: str, tensors: Tensors, callers: bool = True) -> ast.Call | None:
    """The `model.eval()` that rules at a place: the last change of mode on every way to it; None if there is none.

    Where the function of `at` is given the model, and does not change its mode, all its callers in this file decide.
    """
    statement = tree.statement_of(tensors.parents, at)
    while True:
        block = tree.block_around(tensors.parents, statement)
        position = next(index for index, each in enumerate(block) if each is statement)
        for each in reversed(block[:position]):
            if not isinstance(each, (*tree.FUNCTIONS, ast.ClassDef)) and (
                changes := mode_changes(each, model, tensors)
            ):
                last = changes[-1]
                plain = isinstance(each, (ast.Expr, ast.Assign)) and isinstance(last.func, ast.Attribute)
                return last if plain and last.func.attr == "eval" else None  # type: ignore[attr-defined]
            if _made_anew(each, model):
                return None
        parent: ast.AST | None = tensors.parents.get(statement)
        while parent is not None and not isinstance(parent, (ast.stmt, ast.Module)):
            parent = tensors.parents.get(parent)
        if isinstance(parent, tree.FUNCTIONS) and callers:
            return _of_callers(parent, model, tensors)
        if not isinstance(parent, ast.stmt) or isinstance(parent, (*tree.FUNCTIONS, ast.ClassDef)):
            return None
        if isinstance(parent, (ast.For, ast.AsyncFor)) and _binds(parent.target, model):
            return None
        statement = parent


def _made_anew(statement: ast.AST, model: str) -> bool:
    """Whether a statement, or one in it, may give the name another model; `model.to(device)` is the same."""
    return any(
        isinstance(each, ast.Assign)
        and any(_binds(target, model) for target in each.targets)
        and not any(reference(one) == model for one in ast.walk(each.value))
        for each in [statement, *tree.own(statement)]
    )


def _binds(target: ast.expr, model: str) -> bool:
    if isinstance(target, (ast.Tuple, ast.List)):
        return any(_binds(each, model) for each in target.elts)
    return reference(target) == model


def _of_callers(function: tree.Function, model: str, tensors: Tensors) -> ast.Call | None:
    names = [each.arg for each in function.args.args]
    calls = tensors.functions.calls_of(function)
    if model not in names or not calls or tensors.bindings.assigned_in(function, model):
        return None
    found = []
    for call in calls:
        name = given_as(model, call, function)
        found.append(ruling_eval(call, name, tensors, callers=False) if name else None)
    return found[0] if all(found) else None


def given_as(name: str, call: ast.Call, function: tree.Function) -> str:
    """What the caller calls that which is `name` in the function; "" if it has no name there."""
    names = [each.arg for each in function.args.args]
    if name not in names:
        return name
    for each in call.keywords:
        if each.arg == name:
            return reference(each.value)
    position = names.index(name)
    return reference(call.args[position]) if position < len(call.args) else ""


def mode_changes(statement: ast.AST, model: str, tensors: Tensors) -> list[ast.Call]:
    """The calls in a statement that change the model's mode, or may: a function of this file that calls `train()`."""
    found = []
    for node in [statement, *tree.own(statement)]:
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("eval", "train"):
            if (_receiver(node) == model or _assigned(node, model, tensors)) and not (
                node.args and is_false(node.args[0])
            ):
                found.append(node)
        elif (function := tensors.functions.called(node)) is not None and _trains(function):
            found.append(node)
    return sorted(found, key=lambda each: (each.lineno, each.col_offset))


def _trains(function: tree.Function) -> bool:
    return any(
        isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr == "train"
        for each in tree.own(function)
    )


def _receiver(call: ast.Call) -> str:
    node: ast.AST = call.func
    while isinstance(node, ast.Call) or (isinstance(node, ast.Attribute) and not reference(node)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return reference(node).rpartition(".")[0]


def _assigned(call: ast.Call, model: str, tensors: Tensors) -> bool:
    parent = tensors.parents[call]
    return isinstance(parent, ast.Assign) and any(reference(each) == model for each in parent.targets)

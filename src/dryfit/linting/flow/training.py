"""Optimizer steps, cleared gradients, and loops that step only at every k-th micro-batch."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from dryfit.linting.flow import tree
from dryfit.linting.flow.bindings import Bindings
from dryfit.linting.flow.names import number_of, reference
from dryfit.linting.flow.objects import Kind


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One `optimizer.step()`, or `scaler.step(optimizer)`: `optimizer` is its name."""

    call: ast.Call
    optimizer: str
    scaler: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Accumulation:
    """A loop whose optimizer steps only under a condition such as `(i + 1) % k == 0`."""

    loop: ast.AST
    condition: ast.If
    every: ast.expr
    steps: tuple[Step, ...]


def steps_of(syntax: tree.Syntax, kinds: dict[str, Kind]) -> list[Step]:
    """Every step of an optimizer in the file."""
    found = []
    for node in syntax.each(ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr == "step":
            holder = reference(node.func.value)
            stepped = reference(node.args[0]) if node.args else ""
            if kinds.get(holder) is Kind.OPTIMIZER:
                found.append(Step(node, holder))
            elif stepped and (kinds.get(holder) is Kind.SCALER or kinds.get(stepped) is Kind.OPTIMIZER):
                found.append(Step(node, stepped, holder))
    return found


def accumulations_of(parents: tree.Parents, bindings: Bindings, steps: list[Step]) -> list[Accumulation]:
    """The loops of the file that accumulate: all their steps stand under one such condition."""
    by_loop: dict[ast.AST, list[Step]] = {}
    for step in steps:
        loop = tree.loop_of(parents, step.call)
        if loop is not None:
            by_loop.setdefault(loop, []).append(step)
    found = []
    for loop, inside in by_loop.items():
        conditions = [_condition(parents, bindings, step.call, loop) for step in inside]
        first = conditions[0]
        if first is None or any(each is None or each[0] is not first[0] for each in conditions):
            continue
        found.append(Accumulation(loop, first[0], first[1], tuple(inside)))
    return found


def _condition(
    parents: tree.Parents, bindings: Bindings, node: ast.AST, loop: ast.AST
) -> tuple[ast.If, ast.expr] | None:
    inner = node
    for outer in tree.around(parents, node):
        if outer is loop:
            return None
        if isinstance(outer, ast.If) and any(inner is each for each in outer.body):
            every = _every(outer.test) or _every_by_name(bindings, outer.test)
            if every is not None:
                return outer, every
        inner = outer
    return None


def _every_by_name(bindings: Bindings, test: ast.expr) -> ast.expr | None:
    """For `last_micro_batch = (i + 1) % k == 0` and `if last_micro_batch:`."""
    made = bindings.reaching(test.id, test) if isinstance(test, ast.Name) else ()
    return _every(made[0].value) if len(made) == 1 and made[0].how == "assign" and made[0].value is not None else None


def _every(test: ast.expr) -> ast.expr | None:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        return next((found for each in test.values if (found := _every(each)) is not None), None)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _modulus(test.operand)
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
        return _modulus(test.left) or _modulus(test.comparators[0])
    return None


def _modulus(node: ast.expr) -> ast.expr | None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and not isinstance(node.left, ast.Constant):
        return None if number_of(node.right) == 1 else node.right
    return None

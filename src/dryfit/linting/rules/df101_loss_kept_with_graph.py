"""DF101: `total_loss += loss`, where `loss` still has its graph."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dryfit.findings import Finding
from dryfit.findings.finding import DEVICE, HOST
from dryfit.linting.flow import Flow
from dryfit.linting.flow.backward import arithmetic_roots
from dryfit.linting.flow.keeping import outlives, walked_back, walked_before
from dryfit.linting.flow.names import base_name, is_true, reference


def check(flow: Flow) -> Iterator[Finding]:
    """Sums over iterations of losses that a backward walks, or that an evaluation makes with a graph."""
    for statement in flow.syntax.each(ast.AugAssign, ast.Assign):
        summed = _summed(flow, statement)
        if summed is not None:
            yield from _of_sum(flow, statement, *summed)


def _summed(flow: Flow, statement: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """The sum and what is added: of `a += b`, `a = a + b`, and of averages such as `a = 0.9 * a + 0.1 * b`."""
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add):
        # A list grows: DF102.
        return None if isinstance(statement.value, (ast.List, ast.Tuple)) else (statement.target, statement.value)
    if isinstance(statement, ast.Assign) and isinstance(statement.value, (ast.BinOp, ast.IfExp)):
        name = reference(statement.targets[0])
        roots = list(arithmetic_roots(statement.value, flow.imports))
        others = [each for each in roots if reference(each) != name]
        if others and len(others) < len(roots):
            return statement.targets[0], others[-1]
    return None


def _of_sum(flow: Flow, statement: ast.AST, target: ast.expr, value: ast.expr) -> Iterator[Finding]:
    holder = base_name(target)
    if not holder or holder.endswith(".data") or flow.grad_mode.off(statement):
        return
    loop = flow.loop(statement)
    if loop is None:
        if not holder.startswith("self.") or flow.function(statement) is None:
            return
        if any(each.node is not statement for each in flow.bindings.in_function(flow.function(statement), holder)):
            return
    elif not _kept(flow, holder, statement, loop):
        return
    if walked_back(flow, holder, statement):
        return
    backward = walked_before(flow, value, loop)
    written = ast.unparse(value)
    if backward is not None and written != holder:
        retained = is_true(backward.option("retain_graph")) or is_true(backward.option("create_graph"))
        freed = (
            "backward is told to retain it, so the activations of each stay on the card"
            if retained
            else "backward has freed what it held on the card, so host memory grows"
        )
        until = f" until `{holder}` begins anew" if _begins_anew(flow, holder, statement, loop) else ""
        yield flow.finding(
            "DF101",
            statement,
            f"`{holder}` sums `{written}` together with its graph, so the graph of every iteration stays{until}: "
            f"{freed}.",
            f"Add the number: {_number(value)}.",
            backward.node,
            memory=DEVICE if retained else HOST,
            holder=holder,
        )
    elif loop is not None and _evaluated(flow, loop) and flow.tensors.holds_graph(value) is True:
        yield flow.finding(
            "DF101",
            statement,
            f"`{holder}` sums `{written}` together with its graph, and no backward frees it: "
            "the activations of every batch stay on the card.",
            f"Put the loop under `torch.no_grad()`, and add the number: {_number(value)}.",
            holder=holder,
        )


def _begins_anew(flow: Flow, holder: str, statement: ast.AST, loop: ast.AST | None) -> bool:
    """Whether the loop itself sets the sum anew, now and then."""
    return loop is not None and any(
        each.how == "assign" and each.node is not statement and flow.within(each.node, loop)
        for each in flow.bindings.in_function(flow.function(statement), holder)
    )


def _evaluated(flow: Flow, loop: ast.AST) -> bool:
    return any(each.loop is loop for each in flow.evaluations)


def _kept(flow: Flow, holder: str, statement: ast.AST, loop: ast.AST) -> bool:
    if outlives(flow, holder, statement, loop):
        return True
    if not holder.startswith("self."):
        return False
    # An attribute that this function does not set itself was set by another.
    return all(each.how in ("add", "parameter") for each in flow.bindings.reaching(holder, statement))


def _number(value: ast.expr) -> str:
    if isinstance(value, (ast.Name, ast.Attribute)):
        return f"`{ast.unparse(value)}.item()`, or `.detach()` where waiting for it each time is slow"
    return "take `.item()` of the loss, or `.detach()` where waiting for it each time is slow"

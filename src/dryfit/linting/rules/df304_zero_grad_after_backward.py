"""DF304: gradients are cleared after backward made them, before the optimizer's step uses them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dryfit.findings import Finding
from dryfit.linting.flow import Flow, tree
from dryfit.linting.flow.names import reference
from dryfit.linting.flow.objects import Kind
from dryfit.linting.flow.training import Accumulation


def check(flow: Flow) -> Iterator[Finding]:
    """backward, zero_grad, step in this order; or zero_grad at every micro-batch of a loop that accumulates."""
    told: set[ast.AST] = set()
    for call in flow.calls:
        # Each block that clears gradients, once.
        if isinstance(call.func, ast.Attribute) and call.func.attr == "zero_grad":
            statement = tree.statement_of(flow.parents, call)
            block = tree.block_around(flow.parents, statement)
            yield from _in_block(flow, block, flow.parents[statement], told)
    for accumulation in flow.accumulations:
        yield from _in_accumulation(flow, accumulation)


def _in_block(flow: Flow, block: list[ast.stmt], holder: ast.AST, told: set[ast.AST]) -> Iterator[Finding]:
    events = [(kind, call, name) for each in block if (found := _event(flow, each)) for kind, call, name in [found]]
    order = [*events, *events] if isinstance(holder, tree.LOOPS) else events
    for first, (kind, call, name) in enumerate(order):
        if kind != "zero_grad" or first == 0 or call in told:
            continue
        before = next((each for each in reversed(order[:first]) if each[0] in ("backward", "step")), None)
        after = next((each for each in order[first + 1 :] if each[0] in ("backward", "step")), None)
        if before is None or after is None or before[0] != "backward" or after[0] != "step" or after[2] != name:
            continue
        if any(isinstance(each, ast.Attribute) and each.attr == "grad" for each in ast.walk(holder)):
            continue
        told.add(call)
        yield flow.finding(
            "DF304",
            call,
            f"The gradients are cleared after backward and before `{name}.step()`, which then steps without them.",
            "Clear them before backward, or after the step.",
            before[1],
            after[1],
        )


def _event(flow: Flow, statement: ast.stmt) -> tuple[str, ast.AST, str] | None:
    """What a plain statement does: ("backward" | "zero_grad" | "step", its call, the optimizer)."""
    if not isinstance(statement, (ast.Expr, ast.Assign)) or not isinstance(statement.value, ast.Call):
        # Anything that may do any of them hides the order.
        if any(flow.within(each.call, statement) for each in flow.steps):
            return "step", statement, "?"
        if any(flow.within(each.node, statement) for each in flow.backwards):
            return "backward", statement, "?"
        return None
    call = statement.value
    if any(each.node is call for each in flow.backwards):
        return "backward", call, ""
    step = next((each for each in flow.steps if each.call is call), None)
    if step is not None:
        # A closure makes the gradients in the step.
        closed = not step.scaler and (call.args or call.keywords)
        return ("backward", call, "?") if closed else ("step", call, step.optimizer)
    if (
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "zero_grad"
        and flow.kind(call.func.value) is Kind.OPTIMIZER
    ):
        return "zero_grad", call, reference(call.func.value)
    called = flow.functions.called(call)
    if called is not None and any(flow.within(each.node, called) for each in flow.backwards):
        return "backward", call, "?"
    return None


def _in_accumulation(flow: Flow, accumulation: Accumulation) -> Iterator[Finding]:
    body = accumulation.loop.body if isinstance(accumulation.loop, tree.LOOPS) else []
    walked = [each for each in flow.backwards if flow.loop(each.node) is accumulation.loop]
    if any(flow.within(each.node, accumulation.condition) for each in walked) or not walked:
        return
    names = {each.optimizer for each in accumulation.steps}
    for statement in body:
        found = _event(flow, statement)
        if found and found[0] == "zero_grad" and found[2] in names:
            yield flow.finding(
                "DF304",
                found[1],
                f"The gradients are cleared at every micro-batch, and `{found[2]}` steps at every "
                f"`{ast.unparse(accumulation.every)}`-th: the gradients of all others are lost.",
                f"Call `{found[2]}.zero_grad()` right after the step, under the same condition.",
                accumulation.condition.test,
            )

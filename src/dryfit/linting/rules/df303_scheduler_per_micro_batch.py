"""DF303: the schedule steps at every micro-batch, the optimizer only at every k-th."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dryfit.findings import Finding
from dryfit.linting.flow import Flow, tree
from dryfit.linting.flow.names import reference
from dryfit.linting.flow.objects import Kind


def check(flow: Flow) -> Iterator[Finding]:
    """Steps of a schedule that does not count micro-batches, outside of the condition of the optimizer's step."""
    for accumulation in flow.accumulations:
        for call in flow.calls:
            if not isinstance(call.func, ast.Attribute) or call.func.attr != "step" or call.args or call.keywords:
                continue
            if flow.kind(call.func.value) is not Kind.SCHEDULER or flow.loop(call) is not accumulation.loop:
                continue
            if flow.within(call, accumulation.condition) or _conditional(flow, call, accumulation.loop):
                continue
            schedule = reference(call.func.value)
            if _counts_micro_batches(flow, schedule, call, ast.unparse(accumulation.every)):
                continue
            yield flow.finding(
                "DF303",
                call,
                f"`{schedule}` steps at every micro-batch, and `{accumulation.steps[0].optimizer}` at every "
                f"`{ast.unparse(accumulation.every)}`-th: the learning rate runs ahead of the training.",
                f"Call `{schedule}.step()` right after the optimizer's step, under the same condition.",
                accumulation.condition.test,
            )


def _conditional(flow: Flow, node: ast.AST, loop: ast.AST) -> bool:
    for outer in tree.around(flow.parents, node):
        if outer is loop:
            return False
        if isinstance(outer, (ast.If, ast.Try, ast.Match)):
            return True
    return False


def _counts_micro_batches(flow: Flow, schedule: str, at: ast.AST, every: str) -> bool:
    """Whether the schedule's length may be counted in micro-batches: then it may step at each of them."""
    made = [each for each in flow.bindings.reaching(schedule, at) if isinstance(each.value, ast.Call)]
    if not made:
        return True
    for binding in made:
        parts = [binding.value, *(each.value for each in flow.tensors.sources(binding.value) if each.value is not None)]  # type: ignore[arg-type]
        text = " ".join(ast.unparse(each) for each in parts if each is not None)
        if every not in text and ("len(" in text or "steps_per_epoch" in text):
            return True
    return False

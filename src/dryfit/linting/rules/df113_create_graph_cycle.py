"""DF113: `backward(create_graph=True)` in a loop whose gradients nobody differentiates."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dryfit.findings import Finding
from dryfit.linting.flow import Flow
from dryfit.linting.flow.backward import Backward
from dryfit.linting.flow.names import full_name, is_true, last_part
from dryfit.linting.flow.objects import OPTIMIZERS


def check(flow: Flow) -> Iterator[Finding]:
    """Backwards with create_graph, alone in their function, before the step of a first-order optimizer."""
    for backward in flow.backwards:
        if (
            is_true(backward.option("create_graph"))
            and flow.loop(backward.node) is not None
            and _without_use(flow, backward)
        ):
            yield flow.finding(
                "DF113",
                backward.node,
                f"backward makes a graph of the gradients of `{ast.unparse(backward.loss)}`, and nothing "
                "differentiates them: "
                "each parameter and its gradient keep each other alive with the whole graph.",
                "Leave `create_graph=True` out; for a gradient penalty, use `torch.autograd.grad`.",
            )


def _without_use(flow: Flow, backward: Backward) -> bool:
    scope = flow.scope(backward.node)
    function = flow.function(backward.node)
    if any(each is not backward and flow.function(each.node) is function for each in flow.backwards):
        return False
    stepped = {each.optimizer for each in flow.steps if flow.function(each.call) is function}
    made = [
        each.value for name in stepped for each in flow.bindings.everywhere(name) if isinstance(each.value, ast.Call)
    ]
    # An optimizer of the second order (AdaHessian, Sophia) differentiates the gradients in its step.
    if not made or any(last_part(full_name(flow.imports, each.func)) not in OPTIMIZERS for each in made):
        return False
    for node in ast.walk(scope):
        if isinstance(node, ast.Attribute) and node.attr == "grad":
            return False
        if isinstance(node, ast.Call) and flow.name(node.func).endswith(
            ("autograd.grad", "hessian", "hvp", "jacobian")
        ):
            return False
    return True

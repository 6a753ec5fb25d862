"""DF112: one autocast region around the loop in which the optimizer steps."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dryfit.findings import Finding
from dryfit.linting.flow import Flow, tree
from dryfit.linting.flow.names import is_false, keyword, last_part


def check(flow: Flow) -> Iterator[Finding]:
    """Steps of an optimizer in a loop that lies in an autocast region."""
    told: set[ast.AST] = set()
    for step in flow.steps:
        loop = flow.loop(step.call)
        if loop is None or not any(flow.loop(each.node) is loop for each in flow.backwards):
            continue
        for region in _regions(flow, loop):
            if region not in told:
                told.add(region)
                yield flow.finding(
                    "DF112",
                    region,
                    f"One autocast region lasts over all steps of `{step.optimizer}`: the 16-bit copies of the weights "
                    "are made once and kept, so the forward pass does not see what the steps change.",
                    "Open autocast inside the loop, around the forward pass and the loss only.",
                    step.call,
                )


def _regions(flow: Flow, loop: ast.AST) -> Iterator[ast.expr]:
    for outer in tree.around(flow.parents, loop):
        if isinstance(outer, (ast.With, ast.AsyncWith)):
            yield from (each.context_expr for each in outer.items if _is_autocast(flow, each.context_expr))
        if isinstance(outer, tree.FUNCTIONS):
            yield from (each for each in outer.decorator_list if _is_autocast(flow, each))


def _is_autocast(flow: Flow, node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = flow.name(node.func)
    if last_part(name) != "autocast" or not name.startswith(("torch.", "autocast")):
        return False
    return not any(is_false(keyword(node, each)) for each in ("enabled", "cache_enabled"))

"""DF402: a model is told to keep its keys and values, and to checkpoint its blocks."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dryfit.findings import Finding
from dryfit.linting.flow import Flow
from dryfit.linting.flow.names import is_true, keyword, last_part, reference


def check(flow: Flow) -> Iterator[Finding]:
    """`use_cache=True` for a model on which checkpointing is switched on in the same function."""
    for enabled in flow.calls:
        if not isinstance(enabled.func, ast.Attribute) or enabled.func.attr != "gradient_checkpointing_enable":
            continue
        model = reference(enabled.func.value)
        asked = _asked(flow, model, enabled) if model else None
        if asked is not None:
            yield flow.finding(
                "DF402",
                asked,
                f"`{model}` is told to keep keys and values (use_cache=True) and to checkpoint its blocks: the cache "
                "is of no use in training, and the two do not go together.",
                "Say `use_cache=False` for training; switch it on again for generation.",
                enabled,
            )


def _asked(flow: Flow, model: str, enabled: ast.Call) -> ast.AST | None:
    scope = flow.scope(enabled)
    # One that is switched off as well is switched on for something else.
    for node in flow.syntax.each(ast.Attribute):
        if node.attr == "use_cache" and isinstance(node.ctx, ast.Store):
            parent = flow.parents[node]
            if isinstance(parent, ast.Assign) and not is_true(parent.value):
                return None
        if node.attr == "gradient_checkpointing_disable":
            return None
    for binding in flow.bindings.reaching(model, enabled):
        value = binding.value
        if (
            isinstance(value, ast.Call)
            and is_true(keyword(value, "use_cache"))
            and last_part(flow.name(value.func)) == "from_pretrained"
        ):
            return value
    for call in flow.calls:
        # The forward pass of a training loop.
        if (
            reference(call.func) == model
            and is_true(keyword(call, "use_cache"))
            and flow.scope(call) is scope
            and not flow.grad_mode.off(call)
        ) and any(flow.loop(each.node) is flow.loop(call) for each in flow.backwards if flow.loop(call) is not None):
            return call
    return None

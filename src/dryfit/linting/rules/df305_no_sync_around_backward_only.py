"""DF305: `no_sync` around backward alone, where DDP decides in the forward pass."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dryfit.findings import Finding
from dryfit.linting.flow import Flow
from dryfit.linting.flow.names import last_part, reference

_DDP = {"DistributedDataParallel", "DDP"}


def check(flow: Flow) -> Iterator[Finding]:
    """Blocks under a DDP model's `no_sync()` in which backward is the only call."""
    if any(last_part(each).startswith(("FSDP", "FullySharded", "fully_shard")) for each in flow.imports.values()):
        # FSDP decides in backward.
        return
    for node in flow.syntax.each(ast.With):
        model = next((found for each in node.items if (found := _model(flow, each.context_expr))), "")
        if not model or not _is_ddp(flow, model):
            continue
        inside = [each for each in flow.backwards if flow.within(each.node, node)]
        if not inside or not _only_backward(flow, node):
            continue
        if any(
            flow.tensors.is_model_call(each) and reference(each.func) == model and flow.scope(each) is flow.scope(node)
            for each in flow.calls
        ):
            yield flow.finding(
                "DF305",
                node.items[0].context_expr,
                f"`{model}.no_sync()` covers backward alone; DDP looks at it in the forward pass, which is outside, so "
                "the gradients are exchanged at every micro-batch all the same.",
                "Put the forward pass into the same `with` block.",
                inside[0].node,
            )


def _model(flow: Flow, context: ast.expr, depth: int = 2) -> str:
    """The model whose no_sync a `with` enters, if it does."""
    for node in ast.walk(context):
        if isinstance(node, ast.Attribute) and node.attr == "no_sync":
            return reference(node.value)
    name = reference(context.func if isinstance(context, ast.Call) else context)
    if name and depth:
        for binding in flow.bindings.reaching(name, context):
            if (
                binding.value is not None
                and binding.how == "assign"
                and (found := _model(flow, binding.value, depth - 1))
            ):
                return found
    return ""


def _is_ddp(flow: Flow, model: str) -> bool:
    return any(
        isinstance(each.value, ast.Call) and last_part(flow.name(each.value.func)) in _DDP
        for each in flow.bindings.everywhere(model)
    )


def _only_backward(flow: Flow, block: ast.With) -> bool:
    calls = [node for statement in block.body for node in ast.walk(statement) if isinstance(node, ast.Call)]
    walked = [each.node for each in flow.backwards if flow.within(each.node, block)]
    arithmetic = (".item", ".scale", ".detach", ".mean", ".sum")
    return all(each in walked or reference(each.func).endswith(arithmetic) for each in calls)

"""DF302: gradients are clipped while a GradScaler's factor is still in them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dryfit.findings import Finding
from dryfit.linting.flow import Flow, tree
from dryfit.linting.flow.names import is_false, keyword, last_part

_CLIPS = {"clip_grad_norm_", "clip_grad_value_", "clip_grad_norm"}


def check(flow: Flow) -> Iterator[Finding]:
    """Clips between `scaler.scale(loss).backward()` and `scaler.step(optimizer)` with no `unscale_` before them."""
    for clip in flow.calls:
        name = flow.name(clip.func)
        if last_part(name) not in _CLIPS or not name.startswith(
            ("torch.nn.utils", "clip_grad", "torch.nn.utils.clip_grad")
        ):
            continue
        scope = flow.scope(clip)
        steps = [
            each
            for each in flow.steps
            if each.scaler
            and flow.scope(each.call) is scope
            and _after(each.call, clip)
            and not tree.exclusive(flow.parents, clip, each.call)
        ]
        scaled = [
            each
            for each in flow.backwards
            if each.by == "scaler"
            and flow.scope(each.node) is scope
            and _after(clip, each.node)
            and not tree.exclusive(flow.parents, clip, each.node)
        ]
        if not steps or not scaled or _unscaled(flow, scope, clip) or _off(flow, steps[0].scaler):
            continue
        if any(
            _after(clip, each.call) and _after(each.call, scaled[-1].node)
            for each in flow.steps
            if flow.scope(each.call) is scope
        ):
            continue
        scaler, optimizer = steps[0].scaler, steps[0].optimizer
        yield flow.finding(
            "DF302",
            clip,
            f"The gradients are clipped while they still carry `{scaler}`'s factor (65536 at first), so the limit is "
            "that many times smaller than it says.",
            f"Call `{scaler}.unscale_({optimizer})` before the clip, once per step.",
            steps[0].call,
        )


def _after(one: ast.AST, other: ast.AST) -> bool:
    return (one.lineno, one.col_offset) > (other.lineno, other.col_offset)  # type: ignore[attr-defined]


def _unscaled(flow: Flow, scope: ast.AST, clip: ast.AST) -> bool:
    for node in ast.walk(scope):
        if isinstance(node, ast.Attribute) and node.attr in ("unscale_", "unscale_gradients", "unscale"):
            return not _after(node, clip) or flow.loop(node) is not flow.loop(clip)
        called = flow.functions.called(node) if isinstance(node, ast.Call) else None
        if called is not None and any(getattr(each, "attr", "") == "unscale_" for each in ast.walk(called)):
            return True
    return False


def _off(flow: Flow, scaler: str) -> bool:
    made = [each.value for each in flow.bindings.everywhere(scaler)]
    return any(isinstance(each, ast.Call) and is_false(keyword(each, "enabled")) for each in made)

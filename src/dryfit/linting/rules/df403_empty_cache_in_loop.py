"""DF403: `torch.cuda.empty_cache()` at every step of a training loop."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dryfit.findings import Finding
from dryfit.linting.flow import Flow, tree
from dryfit.linting.flow.functions import LIGHTNING


def check(flow: Flow) -> Iterator[Finding]:
    """Calls that every iteration of a loop with a backward, or every training_step, comes by."""
    for call in flow.calls:
        if not flow.name(call.func).endswith("cuda.empty_cache"):
            continue
        loop = flow.loop(call)
        if _conditional(flow, call, loop) or not _every_step(flow, call, loop):
            continue
        yield flow.finding(
            "DF403",
            call,
            "empty_cache runs at every step: it waits for the card, gives its free blocks back, and the next step asks "
            "for them again. It lowers no peak of PyTorch's own.",
            "Leave it out of the loop; against fragmentation, set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
        )


def _every_step(flow: Flow, call: ast.Call, loop: ast.AST | None) -> bool:
    if loop is None:
        function = flow.function(call)
        framework = flow.functions.framework_of(tree.class_of(flow.parents, call)) if function is not None else ""
        return framework == LIGHTNING and function is not None and function.name == "training_step"
    if not any(isinstance(each.func, ast.Attribute) and each.func.attr == "step" for each in flow.calls):
        # Nothing is trained: a measurement, or a search for a batch size, whose iterations have other shapes.
        return False
    for backward in flow.backwards:
        if flow.loop(backward.node) is loop:
            return True
    for each in flow.calls:
        called = flow.functions.called(each) if flow.loop(each) is loop else None
        if called is not None and any(
            flow.within(one.node, called) and flow.loop(one.node) is None for one in flow.backwards
        ):
            return True
    return False


def _conditional(flow: Flow, call: ast.AST, loop: ast.AST | None) -> bool:
    inner = call
    for outer in tree.around(flow.parents, call):
        if outer is loop:
            return False
        if isinstance(outer, ast.ExceptHandler):
            return True
        if isinstance(outer, ast.If) and (inner in outer.orelse or not _about_the_card(outer.test)):
            return True
        inner = outer
    return False


def _about_the_card(test: ast.expr) -> bool:
    text = ast.unparse(test)
    return "is_available" in text or ("cuda" in text and "%" not in text)

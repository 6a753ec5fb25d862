"""DF401: `checkpoint(...)` without use_reentrant, which is then reentrant."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dryfit.findings import Finding
from dryfit.linting.flow import Flow, tree
from dryfit.linting.flow.names import keyword

_CHECKPOINTS = {"torch.utils.checkpoint.checkpoint", "torch.utils.checkpoint.checkpoint_sequential"}


def check(flow: Flow) -> Iterator[Finding]:
    """Calls that do not say; those of a file that says it elsewhere are for older versions of PyTorch."""
    calls = [each for each in flow.calls if flow.name(each.func) in _CHECKPOINTS]
    for call in calls:
        if _says(call) or any(_says(each) and flow.scope(each) is flow.scope(call) for each in calls):
            continue
        if any(isinstance(outer, ast.ExceptHandler) for outer in tree.around(flow.parents, call)):
            continue
        yield flow.finding(
            "DF401",
            call,
            "checkpoint does not say use_reentrant, and the default is the reentrant way: it gives no gradients where "
            "no input requires them, and PyTorch warns that the default will go.",
            "Say `use_reentrant=False`.",
        )


def _says(call: ast.Call) -> bool:
    # `checkpoint_sequential(functions, segments, input, use_reentrant)` takes it by position as well.
    by_position = len(call.args) > 3 and isinstance(call.args[3], ast.Constant) and isinstance(call.args[3].value, bool)
    return keyword(call, "use_reentrant") is not None or any(each.arg is None for each in call.keywords) or by_position

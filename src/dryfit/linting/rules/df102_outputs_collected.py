"""DF102: `outputs.append(output)` in a loop, where `output` still has its graph."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dryfit.findings import Finding
from dryfit.findings.finding import DEVICE, HOST
from dryfit.linting.flow import Flow, tree
from dryfit.linting.flow.backward import Backward
from dryfit.linting.flow.keeping import outlives, walked_back, walked_before
from dryfit.linting.flow.names import base_name, is_true, last_part, reference

_SHORTENS = {"pop", "popleft", "clear", "remove"}
_LISTS = {"list", "deque", "dict", "defaultdict", "OrderedDict"}


def check(flow: Flow) -> Iterator[Finding]:
    """Appends to a list that lives across the iterations of a training or evaluation loop."""
    for node in flow.syntax.each(ast.Call, ast.AugAssign):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "append"
            and len(node.args) == 1
        ):
            yield from _of_append(flow, node, base_name(node.func.value), node.args[0])
        elif isinstance(node, ast.AugAssign) and isinstance(node.value, ast.List) and len(node.value.elts) == 1:
            yield from _of_append(flow, node, base_name(node.target), node.value.elts[0])


def _of_append(flow: Flow, node: ast.AST, holder: str, value: ast.expr) -> Iterator[Finding]:
    loop = flow.loop(node)
    if not holder or flow.grad_mode.off(node):
        return
    if loop is None and not (holder.startswith("self.") and flow.function(node) is not None):
        return
    if loop is not None and not _kept(flow, holder, node, loop):
        return
    if loop is None and flow.bindings.in_function(flow.function(node), holder):
        return
    if _no_list(flow, holder, node) or _shortened(flow, holder, node) or walked_back(flow, holder, node):
        return
    written = ast.unparse(value)
    backward = walked_before(flow, value, loop)
    if backward is None and loop is not None and flow.tensors.holds_graph(value) is True:
        backward = _made_for(flow, value, loop)
    if backward is not None:
        yield flow.finding(
            "DF102",
            node,
            f"`{holder}` keeps `{written}` of every iteration together with its graph, after backward is done with it.",
            f"Append {_detached(value)}.",
            backward.node,
            memory=HOST if _is_loss(value) and not is_true(backward.option("retain_graph")) else DEVICE,
            holder=holder,
        )
    elif (
        loop is not None
        and any(each.loop is loop for each in flow.evaluations)
        and flow.tensors.holds_graph(value) is True
    ):
        yield flow.finding(
            "DF102",
            node,
            f"`{holder}` keeps `{written}` of every batch together with its graph, and no backward frees it: "
            "the activations of every batch stay on the card.",
            f"Put the loop under `torch.no_grad()`, and append {_detached(value)}.",
            holder=holder,
        )


def _kept(flow: Flow, holder: str, node: ast.AST, loop: ast.AST) -> bool:
    if any(flow.within(each.node, loop) and each.how == "assign" for each in flow.bindings.reaching(holder, node)):
        # It is emptied in the loop, now and then.
        return False
    if outlives(flow, holder, node, loop):
        return True
    return holder.startswith("self.") and all(each.how == "parameter" for each in flow.bindings.reaching(holder, node))


def _made_for(flow: Flow, value: ast.expr, loop: ast.AST) -> Backward | None:
    """The backward of the same iteration whose loss was made from `value`."""
    names = [each for each in ast.walk(value) if isinstance(each, ast.Name) and flow.tensors.holds_graph(each) is True]
    reaching = {binding for each in names for binding in flow.bindings.reaching(each.id, each)}
    if not reaching or not all(flow.within(each.node, loop) for each in reaching):
        return None
    for backward in flow.backwards:
        if flow.loop(backward.node) is loop and reaching <= flow.tensors.sources(backward.loss):
            return backward
    return None


def _no_list(flow: Flow, holder: str, node: ast.AST) -> bool:
    """Whether the holder is made by something that may keep sums, such as `CumulativeAverage()`."""
    values = [each.value for each in flow.bindings.reaching(holder, node) or flow.bindings.everywhere(holder)]
    return any(
        isinstance(each, ast.Call) and last_part(reference(each.func) or getattr(each.func, "attr", "")) not in _LISTS
        for each in values
    )


def _shortened(flow: Flow, holder: str, near: ast.AST) -> bool:
    scope = tree.class_of(flow.parents, near) if holder.startswith("self.") else None
    for node in ast.walk(scope or flow.scope(near)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SHORTENS:
            if reference(node.func.value) == holder:
                return True
        elif isinstance(node, ast.Delete) and any(base_name(each) == holder for each in node.targets):
            return True
    return False


def _detached(value: ast.expr) -> str:
    name = ast.unparse(value) if isinstance(value, (ast.Name, ast.Attribute)) else "it"
    return (
        f"`{name}.item()` if it is one number, else `{name}.detach().cpu()`"
        if name != "it"
        else "a number, or the tensor after `.detach().cpu()`"
    )


def _is_loss(value: ast.expr) -> bool:
    # One number: what is left of it after backward is its graph, in host memory.
    return "loss" in ast.unparse(value).lower()

"""DF202: outputs of all batches stay on the card until they are moved to the host together."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dryfit.findings import Finding
from dryfit.linting.flow import Flow, tree
from dryfit.linting.flow.keeping import outlives
from dryfit.linting.flow.names import keyword, reference

_TO_HOST = {"cpu", "numpy", "tolist"}
# What keeps the size of an output.
_SAME_SIZE = {"softmax", "sigmoid", "log_softmax", "float", "detach", "squeeze", "half", "clone", "contiguous"}


def check(flow: Flow) -> Iterator[Finding]:
    """Lists of a model's outputs, under no_grad, that are joined and moved to the host after the loop."""
    for node in flow.calls:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "append" and len(node.args) == 1:
            holder = reference(node.func.value)
            loop = flow.loop(node)
            if loop is None or not holder or holder.startswith("self.") or not flow.grad_mode.off(node):
                continue
            if (
                isinstance(loop, (ast.For, ast.AsyncFor))
                and outlives(flow, holder, node, loop)
                and _is_output(flow, node.args[0], loop)
            ):
                moved = _moved_after(flow, holder, loop)
                if moved is not None and _on_card(flow, loop):
                    yield flow.finding(
                        "DF202",
                        node,
                        f"`{holder}` keeps the outputs of all batches on the card until they go to the host together.",
                        f"Move each to the host as it comes: `{holder}.append({ast.unparse(node.args[0])}.cpu())`.",
                        moved,
                        holder=holder,
                    )


def _is_output(flow: Flow, value: ast.expr, loop: ast.AST, depth: int = 5) -> bool:
    if depth == 0:
        return False
    if flow.tensors.is_model_call(value):
        return True
    if isinstance(value, ast.Call):
        name = flow.name(value.func)
        if isinstance(value.func, ast.Attribute) and not name.startswith("torch.") and value.func.attr in _SAME_SIZE:
            return _is_output(flow, value.func.value, loop, depth - 1)
        if name.startswith("torch.") and name.rpartition(".")[2] in _SAME_SIZE and value.args:
            return _is_output(flow, value.args[0], loop, depth - 1)
        return False
    if isinstance(value, ast.Attribute) and value.attr in ("logits", "last_hidden_state", "data"):
        return _is_output(flow, value.value, loop, depth - 1)
    name = reference(value)
    reaching = flow.bindings.reaching(name, value) if name else ()
    return bool(reaching) and all(
        each.how == "assign"
        and each.index < 0
        and each.value is not None
        and flow.within(each.node, loop)
        and _is_output(flow, each.value, loop, depth - 1)
        for each in reaching
    )


def _moved_after(flow: Flow, holder: str, loop: ast.AST) -> ast.AST | None:
    """The call after the loop that joins the list and moves it to the host."""
    for node in flow.calls:
        if flow.scope(node) is not flow.scope(loop) or node.lineno <= (loop.end_lineno or 0):  # type: ignore[attr-defined]
            continue
        if isinstance(node.func, ast.Attribute) and node.func.attr in _TO_HOST:
            joined: ast.AST = node.func.value
            while (
                isinstance(joined, ast.Call)
                and isinstance(joined.func, ast.Attribute)
                and flow.name(joined.func) not in ("torch.cat", "torch.stack", "torch.vstack", "torch.concat")
            ):
                joined = joined.func.value
            if isinstance(joined, ast.Call) and joined.args and reference(joined.args[0]) == holder:
                return node
    return None


def _on_card(flow: Flow, loop: ast.AST) -> bool:
    """Whether the loop moves its batches to a device."""
    for node in tree.own(loop):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "cuda":
                return True
            if node.func.attr == "to" and (node.args or keyword(node, "device") is not None):
                return True
    return False

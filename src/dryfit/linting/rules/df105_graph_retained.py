"""DF105: `backward(retain_graph=True)` in a loop, and no second backward for which the graph is kept."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dryfit.findings import Finding
from dryfit.linting.flow import Flow, tree
from dryfit.linting.flow.assignments import Binding
from dryfit.linting.flow.backward import Backward
from dryfit.linting.flow.names import is_true, last_part, reference

# Objects that hold settings, and names of things that hold no graph.
_SETTINGS = {
    "args",
    "cfg",
    "config",
    "opt",
    "opts",
    "device",
    "hparams",
    "params",
    "epoch",
    "FLAGS",
    "self.args",
    "self.device",
}

# Names of what batches come from: tensors that it gives have no graph.
_ITERATES = {"tqdm", "trange", "enumerate", "zip", "iter", "range", "track"}
_DATA = re.compile(r"load|iter|data|batch|queue|prefetch|sampler", re.IGNORECASE)


def check(flow: Flow) -> Iterator[Finding]:
    """Backwards whose graph begins and ends in one iteration, and that are alone in it."""
    for backward in flow.backwards:
        loop = flow.loop(backward.node)
        if loop is None or not is_true(backward.option("retain_graph")) or is_true(backward.option("create_graph")):
            continue
        if _walked_again(flow, backward, loop) or not _made_in(flow, backward, loop):
            continue
        yield flow.finding(
            "DF105",
            backward.node,
            f"backward keeps the graph of `{ast.unparse(backward.loss)}` for a second backward, and none follows: "
            "the saved activations live on into the next iteration's forward pass.",
            "Leave `retain_graph=True` out.",
        )


def _walked_again(flow: Flow, backward: Backward, loop: ast.AST) -> bool:
    function = flow.function(backward.node)
    if any(each is not backward and flow.function(each.node) is function for each in flow.backwards):
        return True
    for node in tree.own(loop):
        if isinstance(node, ast.Call):
            name = flow.name(node.func)
            if name.startswith("torch.autograd.") and name.endswith(("grad", "backward")):
                return True
            called = flow.functions.called(node)
            if called is not None and any(flow.within(each.node, called) for each in flow.backwards):
                return True
            if _steps_with_a_closure(flow, node):
                return True
            # The loss, or what it was made of, goes to a function that may walk it again.
            if (
                called is None
                and any(each in _losses(flow, backward) for each in _given(node))
                and not _harmless(flow, node, backward)
            ):
                return True
    return False


def _steps_with_a_closure(flow: Flow, call: ast.Call) -> bool:
    """Whether a step is given something else than an optimizer: a closure, or a loss that it walks itself."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "step" or not (call.args or call.keywords):
        return False
    stepped = reference(call.args[0]) if call.args else ""
    return flow.kind(call.func.value) is not None and stepped not in {each.optimizer for each in flow.steps}


def _losses(flow: Flow, backward: Backward) -> set[str]:
    return {name for name, _ in flow.tensors.walked_roots(backward)}


def _given(call: ast.Call) -> list[str]:
    return [reference(each) for each in [*call.args, *(each.value for each in call.keywords)]]


def _harmless(flow: Flow, call: ast.Call, backward: Backward) -> bool:
    name = flow.name(call.func)
    return (
        call is backward.node
        or flow.within(call, backward.node)
        or name in ("print", "float", "str", "isinstance", "sum", "len")
        or name.startswith("torch.")
        or ".append" in name
        or name.endswith((".update", ".isnan", ".format", ".write", ".add_scalar", ".scale"))
    )


def _made_in(flow: Flow, backward: Backward, loop: ast.AST) -> bool:
    """Whether the loss is made in this iteration by a forward pass, from nothing that may bring a graph of before."""
    sources = flow.tensors.sources(backward.loss)
    inside = [each for each in sources if flow.within(each.node, loop)]
    has_forward = any(
        flow.tensors.is_model_call(node) for each in inside if each.value is not None for node in ast.walk(each.value)
    )
    return has_forward and all(_brings_no_graph(flow, each, sources, loop) for each in sources)


def _brings_no_graph(flow: Flow, binding: Binding, sources: frozenset[Binding], loop: ast.AST) -> bool:
    if flow.within(binding.node, loop):
        # Carried over: the loop sets the name, and so does what comes before the loop.
        outside = [each for each in sources if each.name == binding.name and not flow.within(each.node, loop)]
        return not outside
    if (
        binding.name in _SETTINGS
        or binding.name.partition(".")[0] in _SETTINGS
        or binding.name in flow.kinds
        or binding.how in ("define", "for")
    ):
        return True
    if binding.name == "self" or any(
        isinstance(each, ast.Call) and reference(each.func) == binding.name for each in flow.calls
    ):
        return True
    made = last_part(flow.name(binding.value.func)) if isinstance(binding.value, ast.Call) else ""
    return bool(_DATA.search(binding.name)) or made in _ITERATES or flow.tensors.holds_graph(binding.value) is False

"""DF301: gradients of k micro-batches are summed, and the loss is not divided by k."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dryfit.findings import Finding
from dryfit.linting.flow import Flow, tree
from dryfit.linting.flow.backward import Backward
from dryfit.linting.flow.names import last_part, number_of, reference
from dryfit.linting.flow.objects import Kind
from dryfit.linting.flow.training import Accumulation

# Those divide the loss, or the gradients, themselves.
_DIVIDES_ITSELF = {
    "accelerator",
    "engine",
    "model_engine",
    "booster",
    "lightning",
    "transformers",
    "loss_scaler",
    "_accelerator",
}


def check(flow: Flow) -> Iterator[Finding]:
    """Loops that step every k-th time, whose loss comes straight from a model or a loss function."""
    for accumulation in flow.accumulations:
        backwards = [each for each in flow.backwards if flow.loop(each.node) is accumulation.loop]
        if not backwards or not _one_way_each(flow, backwards) or not _clears_with_step(flow, accumulation):
            continue
        backward = backwards[0]
        if flow.within(backward.node, accumulation.condition) or backward.by in _DIVIDES_ITSELF:
            continue
        if _divided(flow, backward, accumulation) or not _known(flow, backward):
            continue
        every = ast.unparse(accumulation.every)
        yield flow.finding(
            "DF301",
            backward.node,
            f"`{accumulation.steps[0].optimizer}` steps after every `{every}` backwards, which add up, and the loss is "
            f"not divided: the gradient is `{every}` times that of one batch of all of them.",
            f"Divide the loss by the number of micro-batches of the step: `(loss / {every}).backward()`.",
            accumulation.condition.test,
        )


def _one_way_each(flow: Flow, backwards: list[Backward]) -> bool:
    """Whether one of them alone runs in an iteration: with and without a scaler."""
    first = backwards[0]
    return all(
        tree.exclusive(flow.parents, first.node, each.node) and ast.dump(each.loss) == ast.dump(first.loss)
        for each in backwards[1:]
    )


def _clears_with_step(flow: Flow, accumulation: Accumulation) -> bool:
    """Whether the gradients are cleared where the optimizer steps, and nowhere else in the loop."""
    cleared = [
        node
        for node in tree.own(accumulation.loop)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "zero_grad"
    ]
    return bool(cleared) and all(flow.within(each, accumulation.condition) for each in cleared)


def _divided(flow: Flow, backward: Backward, accumulation: Accumulation) -> bool:
    """Whether anything on the way to the loss, or done to the gradients, may divide."""
    parts: list[ast.AST] = [
        backward.loss,
        *(each.node for each in flow.tensors.sources(backward.loss) if flow.within(each.node, accumulation.loop)),
    ]
    for part in parts:
        for node in [part] if isinstance(part, (ast.For, ast.With)) else ast.walk(part):
            if isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, (ast.Div, ast.FloorDiv, ast.Mult)):
                return True
            if isinstance(node, ast.Call) and _divides(node):
                return True
    for node in tree.own(accumulation.loop):
        if isinstance(node, ast.Attribute) and node.attr == "grad":
            return True
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("register_hook", "div_", "mul_")
        ):
            return True
    made = [node for each in parts for node in ast.walk(each) if isinstance(node, ast.Call)]
    return any(_sums(flow, node) for node in made)


def _divides(call: ast.Call) -> bool:
    name = reference(call.func) or getattr(call.func, "attr", "")
    return last_part(name) in ("div", "div_", "mul", "mul_", "true_divide", "sum") or "reduction" in {
        each.arg for each in call.keywords
    }


def _sums(flow: Flow, call: ast.Call) -> bool:
    """Whether a loss function sums, or is made to do something else than a mean."""
    for binding in flow.bindings.everywhere(reference(call.func)) if reference(call.func) else ():
        if isinstance(binding.value, ast.Call) and any(
            each.arg in ("reduction", "size_average", "reduce") for each in binding.value.keywords
        ):
            return True
    return False


def _known(flow: Flow, backward: Backward) -> bool:
    """Whether the loss is seen to come from a model or a loss function, not from a helper that may divide."""
    found = False
    for _, bindings in flow.tensors.walked_roots(backward):
        for binding in bindings:
            value = binding.value
            if value is None or binding.how == "add":
                return False
            if number_of(value) is not None:
                continue
            for node in ast.walk(value):
                if isinstance(node, ast.Call):
                    if (
                        flow.tensors.is_model_call(node)
                        or flow.kind(node.func) is Kind.LOSS_FUNCTION
                        or flow.name(node.func).startswith("torch.nn.functional.")
                    ):
                        found = True
                    elif flow.functions.called(node) is not None or (
                        not flow.name(node.func).startswith("torch.") and not _plain_method(node)
                    ):
                        return False
    return found


def _plain_method(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in (
        "to",
        "cuda",
        "mean",
        "view",
        "float",
        "long",
        "size",
        "reshape",
        "squeeze",
        "transpose",
        "contiguous",
    )

"""The calls that walk a graph back, and the losses they walk from."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dryfit.linting.flow import tree
from dryfit.linting.flow.functions import LIGHTNING, TRAINER, Functions
from dryfit.linting.flow.names import full_name, keyword, reference, takes
from dryfit.linting.flow.torch_names import KEEPS_GRAPH, WITHOUT_GRAPH

# Objects whose `backward(loss)` takes the loss; the last part of their name.
_RUNNERS = {
    "accelerator",
    "fabric",
    "engine",
    "model_engine",
    "optimizer",
    "scaler",
    "strategy",
    "booster",
    "_accelerator",
}
_REDUCTIONS = {"torch.sum", "torch.mean", "torch.stack", "torch.cat", "sum", "torch.add", "torch.mul", "torch.div"}


@dataclass(frozen=True, slots=True, eq=False)
class Backward:
    """One backward: `node` is the call, or the return where a framework calls it; `loss` the expression it starts from.

    `by` is who calls it: "" for the tensor's own method, or "scaler", "accelerator", "fabric", "lightning", ...
    """

    node: ast.AST
    loss: ast.expr
    by: str

    def option(self, name: str) -> ast.expr | None:
        """The value of a keyword such as retain_graph."""
        return keyword(self.node, name) if isinstance(self.node, ast.Call) else None


def backwards_of(syntax: tree.Syntax, imports: dict[str, str], functions: Functions) -> list[Backward]:
    """Every backward of the file, in the order of the lines."""
    found = []
    for node in syntax.each(ast.Call, ast.Return):
        if (isinstance(node, ast.Call) and (backward := _of_call(node, imports))) or (
            isinstance(node, ast.Return)
            and node.value is not None
            and (backward := _of_return(node, syntax.parents, functions))
        ):
            found.append(backward)
    return sorted(found, key=lambda each: (each.node.lineno, each.node.col_offset))  # type: ignore[attr-defined]


def _of_call(call: ast.Call, imports: dict[str, str]) -> Backward | None:
    function = call.func
    if full_name(imports, function) == "torch.autograd.backward":
        return Backward(call, call.args[0], "") if call.args else None
    if isinstance(function, ast.Attribute) and function.attr in ("backward", "manual_backward"):
        receiver = function.value
        if (
            isinstance(receiver, ast.Call)
            and isinstance(receiver.func, ast.Attribute)
            and receiver.func.attr == "scale"
            and receiver.args
        ):
            return Backward(call, receiver.args[0], "scaler")
        name = reference(receiver).rpartition(".")[2]
        if call.args and (
            function.attr == "manual_backward" or name in _RUNNERS or _only_the_argument_is_a_loss(name, call.args[0])
        ):
            return Backward(call, call.args[0], name)
        return None if name in ("ctx", "super", "Function") else Backward(call, receiver, "")
    # timm's way: loss_scaler(loss, optimizer, ...) scales, walks back, clips and steps.
    if (
        "scaler" in reference(function).rpartition(".")[2].lower()
        and len(call.args) >= 2
        and not full_name(imports, function)[:1].isupper()
    ):
        return Backward(call, call.args[0], "loss_scaler")
    return None


def _only_the_argument_is_a_loss(receiver: str, argument: ast.expr) -> bool:
    return "loss" in reference(argument).lower() and "loss" not in receiver.lower() and bool(receiver)


def _of_return(node: ast.Return, parents: tree.Parents, functions: Functions) -> Backward | None:
    function = tree.function_of(parents, node)
    holder = parents.get(function) if function is not None else None
    if function is None or node.value is None or not isinstance(holder, ast.ClassDef):
        return None
    framework = functions.framework_of(holder)
    if framework == LIGHTNING and function.name == "training_step":
        return Backward(node, _loss_in(node.value), LIGHTNING)
    if framework == TRAINER and function.name == "compute_loss":
        return Backward(node, _loss_in(node.value), TRAINER)
    return None


def _loss_in(value: ast.expr) -> ast.expr:
    if isinstance(value, ast.Dict):
        for key, each in zip(value.keys, value.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == "loss":
                return each
    if isinstance(value, ast.IfExp):
        return _loss_in(value.orelse)
    if isinstance(value, ast.Tuple) and value.elts:
        return value.elts[0]
    return value


def arithmetic_roots(expression: ast.AST, imports: dict[str, str]) -> Iterator[ast.expr]:
    """The names that an expression is arithmetic of, with their graph: `(a + b.mean()) / k` -> a, b."""
    if isinstance(expression, (ast.Name, ast.Attribute)) or (
        isinstance(expression, ast.Subscript) and reference(expression)
    ):
        if takes(expression, WITHOUT_GRAPH):
            return
        if reference(expression):
            yield expression
        elif isinstance(expression, ast.Attribute) and expression.attr == "loss":
            yield from arithmetic_roots(expression.value, imports)
    elif isinstance(expression, ast.BinOp):
        yield from arithmetic_roots(expression.left, imports)
        yield from arithmetic_roots(expression.right, imports)
    elif isinstance(expression, ast.UnaryOp):
        yield from arithmetic_roots(expression.operand, imports)
    elif isinstance(expression, ast.IfExp):
        yield from arithmetic_roots(expression.body, imports)
        yield from arithmetic_roots(expression.orelse, imports)
    elif isinstance(expression, (ast.List, ast.Tuple)):
        for each in expression.elts:
            yield from arithmetic_roots(each, imports)
    elif isinstance(expression, ast.Call):
        if (full_name(imports, expression.func) in _REDUCTIONS and expression.args) or (
            isinstance(expression.func, ast.Attribute)
            and expression.func.attr in ("scale", "scale_loss")
            and expression.args
        ):
            yield from arithmetic_roots(expression.args[0], imports)
        elif isinstance(expression.func, ast.Attribute) and expression.func.attr in KEEPS_GRAPH:
            yield from arithmetic_roots(expression.func.value, imports)

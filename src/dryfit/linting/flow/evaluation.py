"""Forward passes in a loop, of a model in eval() mode, whose graph is built though no backward follows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from dryfit.linting.flow import tree
from dryfit.linting.flow.backward import Backward
from dryfit.linting.flow.modes import given_as, mode_changes, ruling_eval
from dryfit.linting.flow.names import full_name, is_false, keyword, last_part, reference
from dryfit.linting.flow.tensors import Tensors

# Words in the names of functions, or of what is called in the loop, that need gradients of a model in eval() mode.
_NEEDS_GRADIENTS = re.compile(
    r"attack|adversar|perturb|pgd|fgsm|saliency|attribut|gradcam|grad_cam|(^|_)cam(_|$)|explain|hessian|jacobian|fisher|"
    r"influence|autograd|backward|gradient|(^|_)grads?(_|$)|optimi[sz]|inver(t|sion)|dream|finetune|fine_tune|calibrat|"
    r"train_step|training_step|register_hook|requires_grad|langevin|retain_grad|sensitiv|distill|quantiz|jit_trace|export|style",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, eq=False)
class EvaluationForward:
    """One such forward pass: `call` is `model(x)`, `loop` the loop it stands in, `mode` the call of `model.eval()`."""

    call: ast.Call
    model: str
    loop: ast.AST
    mode: ast.Call


def evaluation_forwards(syntax: tree.Syntax, tensors: Tensors, backwards: list[Backward]) -> list[EvaluationForward]:
    """Those of the whole file."""
    if _freezes_everything(syntax):
        return []
    found: list[EvaluationForward] = []
    for call in syntax.each(ast.Call):
        for model in _models_run(call, tensors):
            if not tensors.grad_mode.off(call):
                found.extend(_of_call(call, model, tensors, backwards))
    return found


def _models_run(call: ast.Call, tensors: Tensors) -> list[str]:
    """The models whose forward pass a call is, or that a function of this file runs once when it is called."""
    if tensors.is_model_call(call):
        return [reference(call.func).removesuffix(".forward")]
    function = tensors.functions.called(call)
    if function is None:
        return []
    run = [each for each in tree.own(function) if isinstance(each, ast.Call) and tensors.is_model_call(each)]
    names = {
        given_as(reference(each.func).removesuffix(".forward"), call, function)
        for each in run
        if tree.loop_of(tensors.parents, each) is None and not tensors.grad_mode.off(each)
    }
    return sorted(names - {""})


def _of_call(call: ast.Call, model: str, tensors: Tensors, backwards: list[Backward]) -> Iterator[EvaluationForward]:
    parents = tensors.parents
    loop = tree.loop_of(parents, call)
    function = tree.function_of(parents, call)
    mode = ruling_eval(call, model, tensors)
    if loop is None or mode is None or model == "self" or _ends_at_once(loop):
        return
    scope: ast.AST = function or _top(parents, call)
    if function is not None and (function.name in tensors.functions.passed_on or _unit_test(call, parents)):
        return
    if (
        _NEEDS_GRADIENTS.search(tree.qualified_name(parents, call))
        or _frozen(scope, model)
        or _frozen(_top(parents, call), model)
        or _made_frozen(_top(parents, call), model)
    ):
        return
    if any(tree.within(parents, each.node, loop) for each in backwards):
        return
    if any(_follows(each, mode, function, tensors, model) for each in backwards):
        return
    for node in tree.own(loop):
        if isinstance(node, ast.Call) and _may_need_gradients(node, model, tensors, backwards):
            return
    yield EvaluationForward(call, model, loop, mode)


def _unit_test(call: ast.Call, parents: tree.Parents) -> bool:
    """Whether it stands in a `TestCase`: that looks at values, and often at what has no parameters."""
    around = tree.class_of(parents, call)
    return around is not None and any("TestCase" in reference(each) for each in around.bases)


def _ends_at_once(loop: ast.AST) -> bool:
    """Whether the loop takes one batch only."""
    return isinstance(loop, tree.LOOPS) and isinstance(loop.body[-1], (ast.Break, ast.Return))


def _follows(backward: Backward, mode: ast.Call, function: ast.AST | None, tensors: Tensors, model: str) -> bool:
    """Whether a backward comes in the same function after eval(), with no train() in between."""
    node = backward.node
    if tree.function_of(tensors.parents, node) is not function:
        return False
    if tree.function_of(tensors.parents, mode) is not function:
        return True
    if node.lineno < mode.lineno:  # type: ignore[attr-defined]
        return False
    between = [
        each
        for each in mode_changes(function or _top(tensors.parents, node), model, tensors)
        if mode.lineno < each.lineno <= node.lineno  # type: ignore[attr-defined]
    ]
    return not any(isinstance(each.func, ast.Attribute) and each.func.attr == "train" for each in between)


def _may_need_gradients(call: ast.Call, model: str, tensors: Tensors, backwards: list[Backward]) -> bool:
    name = full_name(tensors.imports, call.func) or getattr(call.func, "attr", "")
    if (
        _NEEDS_GRADIENTS.search(last_part(name))
        or name.startswith(("torch.autograd.", "torch.jit."))
        or last_part(name) == "step"
    ):
        return not name.startswith(("torch.autograd.Variable", "torch.autograd.profiler"))
    if any(keyword(call, each) is not None for each in ("requires_grad", "volatile")):
        return True
    function = tensors.functions.called(call)
    if function is not None:
        return any(tree.within(tensors.parents, each.node, function) for each in backwards)
    # A function of another file that is given the model may walk its graph.
    given = [reference(each) for each in [*call.args, *(each.value for each in call.keywords)]]
    return model in given and name not in ("len", "print", "isinstance", "getattr", "hasattr", "type")


def _frozen(scope: ast.AST, model: str) -> bool:
    """Whether the model's parameters are said not to need gradients, or the model is one that has none."""
    for node in ast.walk(scope):
        if isinstance(node, ast.Call) and reference(node.func) == f"{model}.requires_grad_":
            return True
        if isinstance(node, ast.For) and reference(getattr(node.iter, "func", None)).startswith(f"{model}."):
            for each in ast.walk(node):
                if isinstance(each, ast.Attribute) and each.attr in ("requires_grad", "requires_grad_"):
                    return True
    return False


def _made_frozen(module: ast.AST, model: str) -> bool:
    """Whether the model is made by a class of this file that asks for a network without gradients."""
    frozen = {
        each.name
        for each in ast.walk(module)
        if isinstance(each, ast.ClassDef)
        and any(
            isinstance(one, ast.keyword) and one.arg == "requires_grad" and is_false(one.value)
            for one in ast.walk(each)
        )
    }
    return any(
        isinstance(each, ast.Assign)
        and any(reference(target) == model for target in each.targets)
        and any(isinstance(one, ast.Name) and one.id in frozen for one in ast.walk(each.value))
        for each in ast.walk(module)
    )


def _freezes_everything(syntax: tree.Syntax) -> bool:
    names = ("set_grad_enabled", "_set_grad_enabled", "volatile")
    if any(node.attr in names for node in syntax.each(ast.Attribute)):
        return True
    return any(node.arg == "volatile" for node in syntax.each(ast.keyword))


def _top(parents: tree.Parents, node: ast.AST) -> ast.AST:
    while node in parents:
        node = parents[node]
    return node

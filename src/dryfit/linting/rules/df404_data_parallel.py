"""DF404: `nn.DataParallel` around a model that is trained."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import PurePath

from dryfit.findings import Finding
from dryfit.linting.flow import Flow, tree
from dryfit.linting.flow.names import is_false, keyword, last_part, reference
from dryfit.linting.flow.objects import Kind

_NAMES = {"torch.nn.DataParallel", "torch.nn.parallel.DataParallel", "torch.nn.parallel.data_parallel.DataParallel"}
_EVALUATES = re.compile(r"eval|valid|test|predict|infer", re.IGNORECASE)
_TRAINS = re.compile(r"train|fit|optim", re.IGNORECASE)
_EXITS = {"exit", "quit", "sys.exit", "os._exit"}


def check(flow: Flow) -> Iterator[Finding]:
    """Models that are wrapped for more cards than one, where the file shows that the wrapped model is trained."""
    # A unit test that wraps a model looks at the wrapper.
    if PurePath(flow.file).name.startswith("test_") or not _file_trains(flow):
        return
    for call in flow.calls:
        if flow.name(call.func) not in _NAMES or not _trained(flow, call):
            continue
        devices = keyword(call, "device_ids") or (call.args[1] if len(call.args) > 1 else None)
        if isinstance(devices, (ast.List, ast.Tuple)) and len(devices.elts) <= 1:
            continue
        yield flow.finding(
            "DF404",
            call,
            "DataParallel copies the model to every card at each forward pass, and gathers outputs and gradients on "
            "the first: that card is full while the others have room.",
            "Use `torch.nn.parallel.DistributedDataParallel` with one process per card (`torchrun`).",
        )


def _file_trains(flow: Flow) -> bool:
    """Whether the file has a backward or a step, or hands an optimizer to what may have them."""
    if flow.backwards or flow.steps:
        return True
    optimizers = {name for name, kind in flow.kinds.items() if kind is Kind.OPTIMIZER}
    for statement in flow.syntax.each(ast.Assign):
        if any(flow.name(each).startswith("torch.optim.") for each in ast.walk(statement.value)):
            optimizers.update(reference(each) for each in statement.targets)
    optimizers.discard("")
    return any(optimizers.intersection(_given(call)) for call in flow.calls)


def _trained(flow: Flow, call: ast.Call) -> bool:
    """Whether the wrapped model is trained; what leaves its function is, as the file trains."""
    statement = tree.statement_of(flow.parents, call)
    if _without_a_card(flow, statement):
        return False
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    name = reference(target) if isinstance(target, (ast.Name, ast.Attribute)) else ""
    forwards = [each for each in flow.calls if name and reference(each.func) == name]
    if forwards and all(flow.grad_mode.off(each) for each in forwards):
        return False
    if not name or name.startswith("self."):
        return True
    model = name.partition(".")[0]
    scope = _ends_there(flow, statement) or flow.scope(call)
    if any(_leaves(each.value, model) for each in flow.syntax.each(ast.Return) if flow.within(each, scope)):
        return True
    return any(_trains(flow, each, model, name) for each in flow.calls if each is not call and flow.within(each, scope))


def _trains(flow: Flow, call: ast.Call, model: str, name: str) -> bool:
    called = reference(call.func)
    if called.startswith(f"{model}.") and last_part(called) in ("parameters", "named_parameters", "train"):
        return not (call.args and is_false(call.args[0]))
    if called in (model, name, f"{model}.forward", f"{name}.forward") and not flow.grad_mode.off(call):
        return any(flow.function(each.node) is flow.function(call) for each in flow.backwards)
    if model not in _given(call) or _EVALUATES.search(called):
        return False
    function = flow.functions.called(call)
    return (
        bool(_TRAINS.search(called))
        or any(flow.kinds.get(each) is Kind.OPTIMIZER for each in _given(call))
        or (function is not None and any(flow.within(each.node, function) for each in flow.backwards))
    )


def _without_a_card(flow: Flow, statement: ast.stmt) -> bool:
    outer = flow.parents.get(statement)
    return isinstance(outer, ast.If) and statement in outer.orelse and "is_available" in ast.unparse(outer.test)


def _ends_there(flow: Flow, statement: ast.stmt) -> ast.AST | None:
    """The branch around the statement that ends the program or its function, if there is one."""
    inner: ast.AST = statement
    for outer in tree.around(flow.parents, statement):
        if isinstance(outer, tree.FUNCTIONS):
            return None
        if isinstance(outer, ast.If):
            last = (outer.body if inner in outer.body else outer.orelse)[-1]
            exits = (
                isinstance(last, ast.Expr) and isinstance(last.value, ast.Call) and reference(last.value.func) in _EXITS
            )
            if exits or isinstance(last, (ast.Return, ast.Raise)):
                return outer
        inner = outer
    return None


def _given(call: ast.Call) -> set[str]:
    return {reference(each) for each in [*call.args, *(each.value for each in call.keywords)]} - {""}


def _leaves(value: ast.AST | None, model: str) -> bool:
    """Whether a function's result has the model, and not only what an evaluation of it gives."""
    if isinstance(value, ast.Call) and _EVALUATES.search(reference(value.func)):
        return False
    if isinstance(value, ast.Name):
        return value.id == model
    return value is not None and any(_leaves(each, model) for each in ast.iter_child_nodes(value))

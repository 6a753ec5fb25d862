"""DF404: `nn.DataParallel` in a program that trains."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import PurePath

from dryfit.findings import Finding
from dryfit.linting.flow import Flow, tree
from dryfit.linting.flow.names import keyword, reference
from dryfit.linting.flow.objects import Kind

_NAMES = {"torch.nn.DataParallel", "torch.nn.parallel.DataParallel", "torch.nn.parallel.data_parallel.DataParallel"}
_EVALUATES = re.compile(r"eval|valid|test|predict|infer", re.IGNORECASE)


def check(flow: Flow) -> Iterator[Finding]:
    """Models that are wrapped for more cards than one, in a file that trains, or hands an optimizer to what does."""
    # A unit test that wraps a model looks at the wrapper.
    if PurePath(flow.file).name.startswith("test_") or not _trains(flow):
        return
    for call in flow.calls:
        if flow.name(call.func) not in _NAMES or _not_trained(flow, call):
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


def _trains(flow: Flow) -> bool:
    if flow.backwards or flow.steps:
        return True
    optimizers = {name for name, kind in flow.kinds.items() if kind is Kind.OPTIMIZER}
    for statement in flow.syntax.each(ast.Assign):
        if any(flow.name(each).startswith("torch.optim.") for each in ast.walk(statement.value)):
            optimizers.update(reference(each) for each in statement.targets)
    optimizers.discard("")
    return any(reference(each) in optimizers for call in flow.calls for each in _given(call))


def _not_trained(flow: Flow, call: ast.Call) -> bool:
    """Whether the wrapped model is called without gradients alone, or has a name that only evaluations are given."""
    statement = tree.statement_of(flow.parents, call)
    if not isinstance(statement, ast.Assign) or not (name := reference(statement.targets[0])):
        return False
    forwards = [each for each in flow.calls if reference(each.func) == name]
    if forwards:
        return all(flow.grad_mode.off(each) for each in forwards)
    if not isinstance(statement.targets[0], ast.Name) or (call.args and reference(call.args[0]) == name):
        return False
    given = [each for each in flow.calls if each is not call and any(reference(one) == name for one in _given(each))]
    returned = any(reference(each.value) == name for each in flow.syntax.each(ast.Return))
    return not returned and all(_EVALUATES.search(flow.name(each.func)) for each in given)


def _given(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(each.value for each in call.keywords)]

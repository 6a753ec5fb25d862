"""What a training loop keeps from iteration to iteration: the common part of the rules on kept losses and outputs."""

from __future__ import annotations

import ast

from dryfit.linting.flow import tree
from dryfit.linting.flow.assignments import Binding
from dryfit.linting.flow.backward import Backward, arithmetic_roots
from dryfit.linting.flow.flow import Flow
from dryfit.linting.flow.names import is_true, prefixes, reference


def walked_before(flow: Flow, value: ast.expr, loop: ast.AST | None) -> Backward | None:
    """The backward, once per iteration of `loop`, that walks the graph which `value` still has; None if none is known.

    Without a loop it is one of the same function: a method that a training loop calls for each batch.
    """
    inside = [each for each in flow.backwards if _same_pass(flow, each, value, loop)]
    walked: dict[str, set[Binding]] = {}
    by_name: dict[str, Backward] = {}
    for backward in inside:
        for name, bindings in flow.tensors.walked_roots(backward):
            walked.setdefault(name, set()).update(bindings)
            by_name.setdefault(name, backward)
    for root in arithmetic_roots(value, flow.imports):
        name = reference(root)
        reaching = flow.bindings.reaching(name, value)
        if (
            name in walked
            and reaching
            and set(reaching) <= walked[name]
            and (loop is None or any(flow.within(each.node, loop) for each in reaching))
            and flow.tensors.holds_graph(root) is not False
        ):
            return by_name[name]
    function = flow.functions.called(value) if isinstance(value, ast.Call) else None
    return None if function is None else _walked_and_returned(flow, function)


def _same_pass(flow: Flow, backward: Backward, value: ast.expr, loop: ast.AST | None) -> bool:
    if flow.function(backward.node) is not flow.function(value):
        return False
    return flow.loop(backward.node) is loop


def _walked_and_returned(flow: Flow, function: tree.Function) -> Backward | None:
    """The backward of a helper's loss, where the helper returns that loss as it is."""
    returns = [each for each in tree.own(function) if isinstance(each, ast.Return)]
    if len(returns) != 1 or returns[0].value is None or not reference(returns[0].value):
        return None
    found = walked_before(flow, returns[0].value, None)
    return found if found is None or isinstance(found.node, ast.Call) else None


def outlives(flow: Flow, holder: str, at: ast.AST, loop: ast.AST) -> bool:
    """Whether what `holder` names at `at` was made outside of `loop`, so that iterations share it."""
    return any(
        not flow.within(each.node, loop) and each.how in ("assign", "add") and not _made_elsewhere(each)
        for each in flow.bindings.reaching(holder, at)
    )


def _made_elsewhere(binding: Binding) -> bool:
    # A deque with a length, or something of numpy, keeps no graphs or not for long.
    text = ast.dump(binding.value) if binding.value is not None else ""
    return "'maxlen'" in text or "id='np'" in text or "id='numpy'" in text


def _leaves(flow: Flow, holder: str, near: ast.AST) -> bool:
    """Whether what is kept can be walked back by someone else: an attribute, or part of what is returned."""
    scope = flow.scope(near)
    returns = [each for each in flow.syntax.each(ast.Return) if flow.scope(each) is scope and each.value is not None]
    return holder.startswith("self.") or any(reference(node) == holder for each in returns for node in ast.walk(each))


def walked_back(flow: Flow, holder: str, near: ast.AST) -> bool:
    """Whether a backward near `near` walks from something made of `holder`: then its graphs are kept on purpose."""
    scope = tree.class_of(flow.parents, near) if holder.startswith("self.") else None
    for backward in flow.backwards:
        if scope is not None and not flow.within(backward.node, scope):
            continue
        if scope is None and flow.function(backward.node) is not flow.function(near):
            continue
        if holder in (name for name, _ in flow.tensors.walked_roots(backward)):
            return True
        if is_true(backward.option("retain_graph")) and _leaves(flow, holder, near):
            return True
        for binding in flow.tensors.sources(backward.loss):
            if holder in prefixes(binding.name) and flow.function(binding.node) is flow.function(backward.node):
                return True
        if any(reference(each) == holder for each in ast.walk(backward.loss)):
            return True
    return False

"""Evaluation without a graph: a model in evaluation mode is called under `torch.no_grad()`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from weakref import WeakSet

from dryfit.measures.facts import Facts
from dryfit.measures.measure import Measure, changes_nothing
from dryfit.measures.moments import CannotSwitchOn, Moments


def _why_not(facts: Facts) -> str:
    if not facts.evaluation_with_graph:
        return "no model in evaluation mode keeps activations for a backward pass that does not come"
    return ""


def _switch_on(moments: Moments, _: str) -> None:
    import torch

    region: torch.no_grad | None = None
    optimized: set[int] = set()  # parameters, by identity
    without_graph: WeakSet[Any] = WeakSet()
    with_graph = False  # since the last backward pass

    def note(optimizer: Any) -> None:
        optimized.update(id(each) for group in optimizer.param_groups for each in group["params"])

    def enter(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        nonlocal region, with_graph
        if not torch.is_grad_enabled() or not any(each.requires_grad for each in model.parameters()):
            return
        # A gradient for the input is wanted by who trains something before this model.
        if model.training or any(each.requires_grad for each in _tensors((args, kwargs))):
            with_graph = True
            return
        region = torch.no_grad()
        region.__enter__()
        without_graph.add(model)
        moments.acts()

    def leave(_: Any) -> None:
        nonlocal region
        if region is not None:
            region.__exit__(None, None, None)
            region = None

    def before_backward() -> None:
        if without_graph and not with_graph:
            _refuse(next(iter(without_graph)))

    def after_backward() -> None:
        nonlocal with_graph
        with_graph = False

    def after_step() -> None:
        for model in without_graph:
            trained = [each for each in model.parameters() if id(each) in optimized and each.requires_grad]
            if trained and all(each.grad is None for each in trained):
                _refuse(model)
        without_graph.clear()

    moments.when_model_is_called(enter)
    moments.when_model_returned(leave)
    moments.when_backward_begins(before_backward)
    moments.when_backward_is_over(after_backward)
    moments.when_all_have_stepped(after_step)
    moments.when_optimizer_was_made(note)


def _refuse(model: Any) -> None:
    raise CannotSwitchOn(
        f"{type(model).__name__} is trained while it is in evaluation mode, so that its calls cannot be told from "
        "those of an evaluation; put torch.no_grad() around the evaluation by hand."
    )


def _tensors(value: Any) -> Iterator[Any]:
    """All tensors in arguments of a call."""
    if hasattr(value, "requires_grad"):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _tensors(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)


MEASURES = (
    Measure(
        name="evaluation-no-grad",
        title="evaluation without a graph",
        what="The evaluation runs under torch.no_grad(), and keeps nothing for a backward pass that never comes.",
        group="evaluation",
        why_not=_why_not,
        changes=changes_nothing,
        switch_on=_switch_on,
        snippets={
            "pytorch": """
model.eval()
with torch.no_grad():
    ...  # the evaluation
model.train()
""",
        },
    ),
)

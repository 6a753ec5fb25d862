"""What a program under FSDP2 keeps whole on each rank for a time, to send less: parameters, or gradients."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from dryfit.measures.facts import Facts
from dryfit.measures.instead import instead
from dryfit.measures.measure import PYTORCH, Measure, changes_nothing
from dryfit.measures.moments import Moments

_WHERE = ("torch.distributed.fsdp", "torch.distributed._composable.fsdp")  # the second until torch 2.6


def _why_not_fsdp2(facts: Facts) -> str:
    if not any(model.is_distributed == "FSDP2" for model in facts.models):
        return "no model of the program is sharded by FSDP2 (fully_shard)"
    return "" if facts.way == PYTORCH else "it is a setting of the program's trainer, and not of its own loop"


def _why_not_reduced(facts: Facts) -> str:
    if why := _why_not_fsdp2(facts):
        return why
    return "each step has one backward pass, which is reduced" if facts.backwards_per_step == 1 else ""


def _reshard(moments: Moments, _: str) -> None:
    def fully_shard(real: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("reshard_after_forward") not in (None, True):  # not at all, or to a group of so many ranks
            del kwargs["reshard_after_forward"]
            moments.acts()
        return real(*args, **kwargs)

    def wrap(module: ModuleType) -> None:
        if hasattr(module, "fully_shard"):
            instead(module, "fully_shard", fully_shard)

    for name in _WHERE:
        moments.after_import(name, wrap)


def _reduce(moments: Moments, _: str) -> None:
    def requires(real: Any, self: Any, requires_gradient_sync: bool, **kwargs: Any) -> None:
        if not requires_gradient_sync:
            moments.acts()
        real(self, True, **kwargs)

    moments.after_import(
        "torch.distributed.fsdp", lambda module: instead(module.FSDPModule, "set_requires_gradient_sync", requires)
    )


MEASURES = (
    Measure(
        name="reshard-after-forward",
        title="parameters given up after the forward pass",
        what="A block's parameters are gathered again for the backward pass, and not kept whole from the forward pass "
        "on.",
        group="resharding",
        why_not=_why_not_fsdp2,
        changes=changes_nothing,
        switch_on=_reshard,
        snippets={"pytorch": "fully_shard(module)  # without reshard_after_forward=False"},
    ),
    Measure(
        name="reduce-each-micro-batch",
        title="gradients of each micro-batch reduced",
        what="The gradients of every micro-batch are reduced to this rank's shard, and not kept whole until the last.",
        group="reducing",
        why_not=_why_not_reduced,
        changes=changes_nothing,
        switch_on=_reduce,
        snippets={"pytorch": "# without model.set_requires_gradient_sync(False)"},
    ),
)

"""ZeroRedundancyOptimizer: each rank updates some of the parameters, and has the optimizer's states of these alone."""

from __future__ import annotations

from typing import Any

from dryfit.measures.facts import Facts
from dryfit.measures.instead import instead
from dryfit.measures.measure import ACCELERATE, TRANSFORMERS, Measure, changes_nothing
from dryfit.measures.moments import Moments, WantedOptimizer

_KIND = "ZeroRedundancyOptimizer"


def _why_not(facts: Facts) -> str:
    if not facts.has_optimizer:
        return "the program has no optimizer"
    if facts.world == 1:
        return "the program has one rank, and there is nobody to share the optimizer's states with"
    sharded = next((model.is_distributed for model in facts.models if model.is_distributed.startswith("FSDP")), "")
    if sharded:
        return f"the optimizer's states are shared out among the ranks already, by {sharded}"
    if any(each.kind.endswith(f".{_KIND}") for each in facts.optimizers):
        return f"the program's optimizer is a {_KIND} already"
    if facts.way in (TRANSFORMERS, ACCELERATE):
        name = "transformers' Trainer" if facts.way == TRANSFORMERS else "Accelerate"
        return f"{name} saves the optimizer's states itself, and of a {_KIND} no rank has them all"
    return ""


def _switch_on(moments: Moments, _: str) -> None:
    making = 0  # its own `__init__` makes an optimizer of the kind that it is given

    def share_out(wanted: WantedOptimizer) -> None:
        import torch.distributed

        if making or not torch.distributed.is_initialized() or torch.distributed.get_world_size() == 1:
            return
        from torch.distributed.optim import ZeroRedundancyOptimizer

        if issubclass(wanted.kind, ZeroRedundancyOptimizer):
            return
        if not getattr(ZeroRedundancyOptimizer.__init__, "is_counted", False):
            instead(ZeroRedundancyOptimizer, "__init__", make)
            ZeroRedundancyOptimizer.__init__.is_counted = True  # type: ignore[attr-defined]
        wanted.settings = {"optimizer_class": wanted.kind, **wanted.settings}
        wanted.kind = ZeroRedundancyOptimizer
        moments.acts()

    def make(real: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal making
        making += 1
        try:
            real(*args, **kwargs)
        finally:
            making -= 1

    moments.when_optimizer_is_wanted(share_out)


MEASURES = (
    Measure(
        name="zero-redundancy-optimizer",
        title=_KIND,
        what="Each rank updates a part of the parameters and keeps the optimizer's states of that part alone; it then "
        "sends the new values to the others.",
        group="sharding",
        why_not=_why_not,
        changes=changes_nothing,
        switch_on=_switch_on,
        is_uneven=True,
        not_counted="parameters are shared out whole, so that ranks are unequal: the first and the last were "
        "rehearsed, and `--ranks all` rehearses the others",
        snippets={
            "pytorch": """
from torch.distributed.optim import ZeroRedundancyOptimizer
optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=...)
# before rank 0 saves optimizer.state_dict(), all ranks call optimizer.consolidate_state_dict()
""",
            "lightning": "return ZeroRedundancyOptimizer(self.parameters(), optimizer_class=torch.optim.AdamW, lr=...)"
            "  # in configure_optimizers",
        },
    ),
)

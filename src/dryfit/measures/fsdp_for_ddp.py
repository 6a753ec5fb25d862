"""FSDP2 in place of DDP: the ranks that there are share out what each of them has whole."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from dryfit.measures.facts import Facts
from dryfit.measures.measure import Measure, changes_nothing
from dryfit.measures.moments import CannotSwitchOn, Moments, WantedOptimizer
from dryfit.measures.moved import before_model_is_moved
from dryfit.measures.sharding import can_be_sharded, shard, why_not_sharded

if TYPE_CHECKING:
    import torch

# What DDP can be told that FSDP2 is told otherwise, if at all.
_OTHERWISE = ("process_group", "device_mesh", "mixed_precision")


def _why_not(facts: Facts) -> str:
    if not facts.has_optimizer:
        return "the program makes no optimizer, so nothing is trained"
    wrapped = [model for model in facts.models if model.is_distributed == "DDP"]
    if not wrapped:
        return "no model of the program is wrapped in DistributedDataParallel"
    if facts.world == 1:
        return "the program has one rank, and there is nobody to share anything with"
    if why := why_not_sharded(facts, wrapped):
        return why
    if any(model.trainable < model.parameters for model in wrapped):
        return "a part of the model is frozen, and FSDP2 wants to be told which blocks hold it"
    return ""


def _switch_on(moments: Moments, _: str) -> None:
    from torch.nn.parallel import DistributedDataParallel

    moved: WeakSet[torch.nn.Module] = WeakSet()  # sharded in place of being moved, and not given to DDP yet
    trained: set[int] = set()

    def before_card(model: torch.nn.Module) -> bool:
        if not _has_ranks() or not model.training or not can_be_sharded(model):
            return False
        shard(model)
        moved.add(model)
        return True

    def given_to_ddp(kind: type, module: Any, settings: dict[str, Any]) -> Any:
        if kind is not DistributedDataParallel:
            raise CannotSwitchOn(f"the program wraps its model in {kind.__name__}, a class of its own that is a DDP")
        told = [name for name in _OTHERWISE if settings.get(name) is not None]
        if told:
            raise CannotSwitchOn(f"DistributedDataParallel is given {told[0]}, which has to be said to FSDP2 by hand")
        if module in moved:
            moved.discard(module)
        elif not can_be_sharded(module):
            return None
        elif any(id(each) in trained for each in module.parameters()):
            raise CannotSwitchOn(
                "an optimizer was made of the model's parameters before DistributedDataParallel got the model; FSDP2 "
                "puts others in their place, so make the optimizer after it"
            )
        else:
            shard(module)
        _answer_as_ddp(type(module), refuse_hook=moments.guard(refuse_hook))
        moments.acts()
        return module

    def __new__(kind: type, *args: Any, **kwargs: Any) -> Any:
        module = args[0] if args else kwargs.get("module")
        found = moments.guard(given_to_ddp)(kind, module, kwargs) if module is not None else None
        return object.__new__(kind) if found is None else found

    def refuse_hook(*_: Any) -> None:
        raise CannotSwitchOn(
            "the program registers a hook for DDP's reduction of gradients; FSDP2 is told in which dtype it reduces, "
            "by MixedPrecisionPolicy(reduce_dtype=...)"
        )

    def note_trained(wanted: WantedOptimizer) -> None:
        trained.update(map(id, wanted.parameters))

    def called(model: torch.nn.Module, *_: Any) -> None:
        if model in moved:
            raise CannotSwitchOn(
                f"{type(model).__name__} has been sharded as it was moved to the card, and is called without DDP; "
                "shard the model that is trained by hand"
            )

    DistributedDataParallel.__new__ = __new__  # type: ignore[assignment]
    before_model_is_moved(moments, before_card)
    moments.when_optimizer_is_wanted(note_trained)
    moments.when_model_is_called(called)


def _has_ranks() -> bool:
    import torch.distributed

    return torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1


def _answer_as_ddp(kind: Any, *, refuse_hook: Callable[..., None]) -> None:
    """Have a sharded model answer what programs ask of DDP, so that they need no change but in the one line.

    Its class is one that FSDP2 has made of the program's own. Within `no_sync` gradients are reduced all the same.
    """
    if not hasattr(kind, "no_sync"):
        kind.no_sync = lambda _: contextlib.nullcontext()
    if not hasattr(kind, "register_comm_hook"):
        kind.register_comm_hook = refuse_hook
    if not hasattr(kind, "module"):
        kind.module = property(lambda self: self)


MEASURES = (
    Measure(
        name="fsdp-for-ddp",
        title="FSDP2 in place of DDP",
        what="Parameters, gradients and optimizer states are spread over the ranks that there are, where DDP has all "
        "of them on each; a block is gathered while it computes.",
        group="sharding",
        why_not=_why_not,
        changes=changes_nothing,
        switch_on=_switch_on,
        is_uneven=True,
        without=frozenset({"lora", "qlora", "freeze-blocks", "gradient-as-bucket-view"}),
        not_counted="within no_sync() of DDP nothing was sent; here each micro-batch is reduced",
        snippets={
            "pytorch": """
from torch.distributed.fsdp import fully_shard
for module in list(model.modules()):  # a model that is still on the host
    if isinstance(module, {units}):
        fully_shard(module)
fully_shard(model)  # instead of model.cuda() and of DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), ...)
""",
        },
    ),
)

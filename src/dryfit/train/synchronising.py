"""When ranks exchange gradients: DDP after the last micro-batch of a window, FSDP after each unless asked otherwise."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dryfit.train.torch_private import mesh_of_fsdp2

Sync = Literal["auto", "every", "last"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrappers:
    """The outermost modules of the models that exchange gradients between ranks."""

    ddp: tuple[DistributedDataParallel, ...] = ()
    fsdp1: tuple[Any, ...] = ()
    fsdp2: tuple[Any, ...] = ()

    @property
    def sharded(self) -> bool:
        """Whether each rank holds a part of the parameters only."""
        return bool(self.fsdp1 or self.fsdp2)

    @property
    def has_static_graph(self) -> bool:
        """Whether a DDP was made with `static_graph=True`, which is wrong under no_sync: see pytorch/pytorch#143580."""
        return any(ddp.static_graph for ddp in self.ddp)

    @property
    def exchanges(self) -> bool:
        """Whether anything exchanges gradients."""
        return bool(self.ddp or self.sharded)


def find_wrappers(models: Sequence[nn.Module]) -> Wrappers:
    """Find DDP, FSDP1 and FSDP2 in the models, also below torch.compile or a module of the user's."""
    ddp: list[DistributedDataParallel] = []
    fsdp1: list[Any] = []
    fsdp2: list[Any] = []
    fsdp = sys.modules.get("torch.distributed.fsdp")  # not loaded: nothing can be of its classes
    inside: set[nn.Module] = set()
    for model in models:
        for module in model.modules():
            if module in inside:
                continue
            if isinstance(module, DistributedDataParallel):
                ddp.append(module)
            elif fsdp is not None and isinstance(module, fsdp.FullyShardedDataParallel):
                fsdp1.append(module)
            elif callable(getattr(module, "set_requires_gradient_sync", None)):  # FSDPModule has no public name in 2.4
                fsdp2.append(module)
            else:
                continue
            inside.update(module.modules())
    return Wrappers(ddp=tuple(ddp), fsdp1=tuple(fsdp1), fsdp2=tuple(fsdp2))


@contextmanager
def synchronising(wrappers: Wrappers, *, last: bool, sync: Sync) -> Iterator[None]:
    """Hold back the exchange of gradients where it is not due; forward and backward both belong inside.

    DDP decides in forward whether the next backward exchanges. FSDP2's `set_is_last_backward` stays as it is: it is for
    several forwards before the first backward, and would have each backward here prefetch what the one before used.
    """
    held = not last and sync != "every"
    held_sharded = not last and sync == "last"
    with ExitStack() as stack:
        held_ddp = held and not wrappers.has_static_graph
        for module in (*(wrappers.ddp if held_ddp else ()), *(wrappers.fsdp1 if held_sharded else ())):
            stack.enter_context(module.no_sync())
        for module in wrappers.fsdp2 if held_sharded else ():
            module.set_requires_gradient_sync(False)
            stack.callback(module.set_requires_gradient_sync, True)
        yield


def unsharded_gradient_bytes(wrappers: Wrappers) -> int:
    """What `sync="last"` keeps on each card during a window: the gradient of every parameter, whole.

    In the parameters' dtype; FSDP2 keeps it in `MixedPrecisionPolicy.reduce_dtype` where one is set.
    """
    whole: int = sum(
        parameter.numel() * parameter.element_size()  # of a DTensor, the whole tensor's
        for module in wrappers.fsdp2
        for parameter in module.parameters()
        if parameter.requires_grad
    )
    for module in wrappers.fsdp1:
        shards = 1 if module.sharding_strategy.name == "NO_SHARD" else module.process_group.size()
        whole += sum(shards * p.numel() * p.element_size() for p in module.parameters() if p.requires_grad)
    return whole


def groups_that_average(wrappers: Wrappers) -> tuple[Any, ...]:
    """The process groups over which the models' gradients are averaged; several are the dimensions of one mesh."""
    for ddp in wrappers.ddp:
        return (ddp.process_group,)
    for module in wrappers.fsdp1:
        if module.sharding_strategy.name.startswith(("HYBRID", "_HYBRID")):  # its group holds the shards' ranks alone
            return (torch.distributed.group.WORLD,)
        return (module.process_group,)
    for outermost in wrappers.fsdp2:
        for module in outermost.modules():
            if (mesh := mesh_of_fsdp2(module)) is not None:
                return groups_of_mesh(mesh)
    for outermost in wrappers.fsdp2:  # of a PyTorch that has another name for it
        for parameter in outermost.parameters():
            if (mesh := getattr(parameter, "device_mesh", None)) is not None:
                return groups_of_mesh(mesh)
    return ()


def groups_of_mesh(mesh: Any) -> tuple[Any, ...]:
    """A process group for each dimension of a DeviceMesh."""
    return tuple(mesh.get_group(dimension) for dimension in range(mesh.ndim))

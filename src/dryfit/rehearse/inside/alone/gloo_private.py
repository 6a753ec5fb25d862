"""What a rank alone has instead of a group over gloo: nothing is sent, and all ranks brought the same.

It stands on torch's "fake" backend, whose works hold no tensors and which adds nothing. DDP's C++ and hooks of users
read the tensors from a work's future. What NCCL answers for in the same group is left to it. Private names of torch's,
each with the versions checked.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, ModuleType
from typing import Any

# --- checked on 2.14.1 ---------------------------------------------------------------------------

# Methods of a `ProcessGroup`, whose first argument is what they write.
_ADDS = (
    "allreduce",
    "allreduce_coalesced",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
)
_EXCHANGES = ("alltoall", "all_to_all_single")
_COPIES = (
    "broadcast",
    "allgather",
    "allgather_coalesced",
    "all_gather_single",
    "all_gather_single_coalesced",
    "gather",
    "gather_single",
    "scatter",
)
# What they were called before; a version that has the new name calls it for the old one, too.
_BEFORE = {
    "reduce_scatter_single": "_reduce_scatter_base",
    "reduce_scatter_single_coalesced": "reduce_scatter_tensor_coalesced",
    "all_to_all_single": "alltoall_base",
    "all_gather_single": "_allgather_base",
    "all_gather_single_coalesced": "allgather_into_tensor_coalesced",
}


@functools.cache
def group_of(devices: frozenset[str]) -> type:
    """A kind of `torch.distributed.ProcessGroup` for one rank alone, over gloo for tensors of these kinds of device."""
    import torch.distributed as dist

    class Alone(dist.ProcessGroup):
        pass

    for kind, names in ((_added, _ADDS), (_exchanged, _EXCHANGES), (_kept, _COPIES)):
        for new_name in names:
            name = new_name if hasattr(dist.ProcessGroup, new_name) else _BEFORE.get(new_name, "")
            if name:
                setattr(Alone, name, _answered(getattr(dist.ProcessGroup, name), name, kind, devices))
    return Alone


def wait_for_nobody(c10d: ModuleType) -> None:
    """Have a work that is done take a limit of time, which one that was made from a future refuses."""
    real = c10d.Work.wait

    @functools.wraps(real)
    def wait(work: Any, *limit: Any, **named: Any) -> Any:
        try:
            return real(work, *limit, **named)
        except RuntimeError as error:
            if "finite timeout not implemented" not in str(error):
                raise
            return real(work)

    c10d.Work.wait = wait


def _answered(
    real: Callable[..., Any], name: str, answer: Callable[..., None], devices: frozenset[str]
) -> Callable[..., Any]:
    """A method that has the fake backend do what it does, then `answer`, and whose work holds what was written."""

    def collective(self: Any, written: Any, *more: Any, **named: Any) -> Any:
        import torch
        from torch._C._distributed_c10d import _create_work_from_future

        work = real(self, written, *more, **named)
        tensors = list(_tensors_in(written))
        if not all(tensor.device.type in devices for tensor in tensors):
            return work
        with torch.no_grad():
            answer(self, tensors, *more, *named.values())
        of_cards = sorted({tensor.device for tensor in tensors if tensor.is_cuda}, key=str)
        future: Any = torch.futures.Future(devices=of_cards)
        future.set_result(tensors)
        return _create_work_from_future(future)

    # C++ calls a method in Python by its name, unless it is called from a frame of that name.
    code: CodeType = collective.__code__
    collective.__code__ = code.replace(co_name=name)
    return collective


def _tensors_in(written: Any) -> Iterator[Any]:
    if isinstance(written, (list, tuple)):
        for each in written:
            yield from _tensors_in(each)
    else:
        yield written


def _added(group: Any, tensors: Sequence[Any], *more: Any) -> None:
    """N times what this rank brought, of N ranks."""
    import torch.distributed as dist

    said = (getattr(each, "reduceOp", each) for each in more)
    operation = next((each for each in said if isinstance(each, (dist.ReduceOp, dist.ReduceOp.RedOpType))), None)
    for tensor in tensors:
        if operation is None or operation == dist.ReduceOp.SUM:
            tensor.mul_(group.size())
        elif operation == dist.ReduceOp.PRODUCT:
            tensor.pow_(group.size())


def _exchanged(group: Any, tensors: Sequence[Any], brought: Any, *splits: Any) -> None:
    """From every rank the part that this one sends to itself, where parts are of one size."""
    ranks, rank = group.size(), group.rank()
    if isinstance(brought, (list, tuple)):
        parts, own = tensors, brought[rank]
    else:
        of_written, of_brought = [each for each in (*splits, None, None) if each is None or isinstance(each, list)][:2]
        parts = tensors[0].split(of_written or tensors[0].shape[0] // ranks)
        own = brought.split(of_brought or brought.shape[0] // ranks)[rank]
    for part in parts:
        if part.shape == own.shape:
            part.copy_(own)


def _kept(*_: Any) -> None:
    """What the fake backend has written is right: what this rank brought."""

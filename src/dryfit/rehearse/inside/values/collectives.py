"""What is known after a collective: with one rank, what was known before; with more, what the virtual card left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dryfit.rehearse.inside import torch_private
from dryfit.rehearse.inside.values import host
from dryfit.rehearse.inside.values.engine import Engine
from dryfit.rehearse.inside.values.known import SMALL_BYTES, storage_identity

# These read what they write; the others read their `input` arguments, or nothing of this rank's.
_READ_IN_PLACE = ("allreduce_", "allreduce_coalesced_", "reduce_")


def following(engine: Engine, name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel of a `c10d` operator, with the known storages brought up to date after it."""
    base = name.partition("::")[2].partition(".")[0]
    names = [argument.name for argument in torch_private.operator_schema(name).arguments]
    inputs_at = [at for at, argument in enumerate(names) if argument.startswith("input")]
    if not inputs_at and base in _READ_IN_PLACE:
        inputs_at = [0]
    outputs_at = [at for at in range(len(names)) if at not in inputs_at or base in _READ_IN_PLACE]

    def follow(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        inputs = list(host.cuda_tensors([args[at] for at in inputs_at if at < len(args)]))
        outputs = list(host.cuda_tensors([args[at] for at in outputs_at if at < len(args)]))
        is_alone = torch.distributed.get_world_size() == 1
        if base == "broadcast_" and is_alone:
            return kernel(keyset, *args, **kwargs)
        known = all(map(engine.is_known, inputs))
        true = known and is_alone and all(map(engine.known.is_true, inputs))
        # Before: parts of one storage are copied to, one after the other, from where nobody knows what is.
        filled = _filled_together(outputs) if known else set()
        vouched_for = [
            known and (engine.may_vouch_for(tensor) or storage_identity(tensor) in filled) for tensor in outputs
        ]
        result = kernel(keyset, *args, **kwargs)
        for tensor, is_vouched_for in zip(outputs, vouched_for, strict=True):
            if is_vouched_for:
                engine.known.remember(tensor, assumed=not true)
            else:
                engine.known.forget(tensor)
        return result

    return follow


def _filled_together(tensors: list[torch.Tensor]) -> set[int]:
    """Which small storages these tensors fill, each a part of its own, as the parts that all ranks gather do."""
    left: dict[int, int] = {}
    for tensor in tensors:
        storage_bytes = tensor.untyped_storage().nbytes()
        if not tensor.is_floating_point() and storage_bytes <= SMALL_BYTES and tensor.is_contiguous():
            identity = storage_identity(tensor)
            left[identity] = left.get(identity, storage_bytes) - tensor.nbytes
    return {identity for identity, bytes_left in left.items() if bytes_left <= 0}


def operators() -> list[str]:
    """The collectives with a CUDA kernel that write tensors."""
    unwritten = ("c10d::send", "c10d::barrier", "c10d::monitored_barrier_", "c10d::check_for_nan")
    return [name for name in torch_private.cuda_operators("c10d") if name not in unwritten]

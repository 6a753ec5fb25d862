"""What is known after a collective.

In a world of one that is what was known before. A rank that plays alone is answered as if all had brought the same: so
what follows from its own known values is a stand-in, and what only another rank has is not known. Real ranks pass small
payloads to each other; what comes is a stand-in where this rank's part was known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dryfit.rehearse.inside import torch_private, watchdog
from dryfit.rehearse.inside.values import dispatcher_private, host
from dryfit.rehearse.inside.values.engine import Engine
from dryfit.rehearse.inside.values.known import SMALL_BYTES, storage_identity
from dryfit.virtual_card.calls import plays_alone

# These read what they write; the others read their `input` arguments, or nothing of this rank's.
_READ_IN_PLACE = ("allreduce_", "allreduce_coalesced_", "reduce_")
_FROM_ANOTHER = ("recv_", "recv_any_source_")

_PASSED_BYTES = 64 << 10
"""The most that real ranks pass to each other: PAYLOAD of virtual_card/c/ranks.h."""


def following(engine: Engine, name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel of a `c10d` operator, with the known storages brought up to date after it."""
    base = name.partition("::")[2].partition(".")[0]
    names = [argument.name for argument in dispatcher_private.operator_schema(name).arguments]
    group_at = names.index("process_group")
    root_at = names.index("root_rank") if "root_rank" in names else None
    inputs_at = [at for at, argument in enumerate(names) if argument.startswith("input")]
    if not inputs_at and base in _READ_IN_PLACE:
        inputs_at = [0]
    outputs_at = [at for at in range(len(names)) if at not in inputs_at or base in _READ_IN_PLACE]

    def follow(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        watchdog.a_collective_is_called()
        alone = plays_alone()  # asked here: a fork server places this, and must not have looked at its card
        group = dispatcher_private.process_group(args[group_at])
        ranks = group.size()
        is_root = root_at is None or args[root_at] == group.rank()
        if base == "broadcast_" and (ranks == 1 or (alone and is_root)):
            return kernel(keyset, *args, **kwargs)
        inputs = list(host.cuda_tensors([args[at] for at in inputs_at if at < len(args)]))
        outputs = list(host.cuda_tensors([args[at] for at in outputs_at if at < len(args)]))
        is_alone = alone and ranks > 1
        if is_alone and base == "broadcast_":
            inputs = outputs  # what this rank has stands for the root's
        known = all(map(engine.is_known, inputs)) and _are_passed(inputs, outputs, alone or ranks == 1)
        if is_alone and (base in _FROM_ANOTHER or (base == "scatter_" and not is_root)):
            known = False
        true = known and ranks == 1 and all(map(engine.known.is_true, inputs))
        # Before: parts of one storage are copied to, one after the other, from where nobody knows what is.
        filled = _filled_together(outputs) if known else set()
        vouched_for = [
            known and (engine.may_vouch_for(tensor) or storage_identity(tensor) in filled) for tensor in outputs
        ]
        result = kernel(keyset, *args, **kwargs)
        if is_alone and base == "gather_" and any(vouched_for):
            _fill_with_own(inputs, outputs)
        for tensor, is_vouched_for in zip(outputs, vouched_for, strict=True):
            if is_vouched_for:
                engine.known.remember(tensor, assumed=not true)
            else:
                engine.known.forget(tensor)
        if is_alone and not known and base not in _READ_IN_PLACE:  # those may be gradients, which stay unknown
            engine.stand_in(tuple(outputs))
        return result

    return follow


def _are_passed(inputs: list[torch.Tensor], outputs: list[torch.Tensor], is_one_process: bool) -> bool:
    """Whether the virtual card has put there what comes of these."""
    if not is_one_process:
        return all(tensor.nbytes <= _PASSED_BYTES for tensor in inputs or outputs)
    return (
        sum(tensor.nbytes for tensor in inputs) <= SMALL_BYTES and sum(each.nbytes for each in outputs) <= SMALL_BYTES
    )


def _fill_with_own(inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> None:
    """Gathering sends and receives one by one: the virtual card does not see what the others would have sent."""
    with torch_private.without_torch_function(), torch_private.below_autograd():
        for tensor in outputs:
            host.on_host(tensor).copy_(host.on_host(inputs[0]))


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
    return [name for name in dispatcher_private.cuda_operators("c10d") if name not in unwritten]

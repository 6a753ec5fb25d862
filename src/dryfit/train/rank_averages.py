"""Averaging the gradients of DDP models after their backward passes, when every rank is known to have come so far.

DDP averages within the backward pass. A rank that runs out of memory there never joins in, and the others wait for it
until they are killed. So nothing is exchanged during forward and backward here: afterwards each rank says how it went,
and only then are gradients averaged, as DDP would have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import torch
import torch.distributed
from torch import nn

from dryfit.errors import DryfitError, UsageError
from dryfit.train.batch_norms import name_layers
from dryfit.train.synchronising import find_wrappers


class RankAverages:
    """The DDP models of a loop, and what their ranks tell each other; with no DDP model nothing happens.

    Raises:
        UsageError: the models exchange something within forward or backward that cannot be held back.
    """

    def __init__(self, models: Sequence[nn.Module]) -> None:
        wrappers = find_wrappers(models)
        if wrappers.sharded:
            raise UsageError(
                "micro_batched cannot go on after an out-of-memory error with an FSDP model: the other ranks wait "
                "inside a collective for the one that ran out. Find the size beforehand with `dryfit fit`, and use "
                "dryfit.train.accumulate."
            )
        self._ddp = wrappers.ddp
        if not self._ddp:
            return
        if len({id(ddp.process_group) for ddp in self._ddp}) > 1:
            raise UsageError("The DDP models have different process groups; micro_batched takes models of one group.")
        shared = [
            name for model in models for name, each in model.named_modules() if isinstance(each, nn.SyncBatchNorm)
        ]
        if shared:
            raise UsageError(
                f"SyncBatchNorm at {name_layers(shared)} exchanges statistics within the forward pass, where a rank "
                f"that runs out of memory leaves the others waiting. Find the size beforehand with `dryfit fit`, or "
                f"use GroupNorm."
            )
        self._group = self._ddp[0].process_group
        self._world = torch.distributed.get_world_size(self._group)
        self._parameters = [
            parameter
            for ddp in self._ddp
            for name, parameter in ddp.module.named_parameters()
            if name not in getattr(ddp, "parameters_to_ignore", ())
        ]
        # Made now, as there may be no memory for it once it is needed: who failed, and which parameters have gradients.
        self._told = torch.zeros(1 + len(self._parameters), dtype=torch.int32, device=self._parameters[0].device)

    def begin(self) -> None:
        """Give all ranks the buffers of the first, as DDP does before a forward pass."""
        handles: list[Any] = [
            torch.distributed.broadcast(
                buffer, torch.distributed.get_global_rank(self._group, 0), group=self._group, async_op=True
            )
            for ddp in self._ddp
            if ddp.broadcast_buffers
            for name, buffer in ddp.module.named_buffers()
            if name not in getattr(ddp, "parameters_to_ignore", ())
        ]
        for handle in handles:
            handle.wait()

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Exchange nothing within forward and backward."""
        with ExitStack() as stack:
            for ddp in self._ddp:
                stack.enter_context(ddp.no_sync())
                stack.callback(setattr, ddp, "broadcast_buffers", ddp.broadcast_buffers)
                ddp.broadcast_buffers = False
            yield

    def stop_others(self) -> None:
        """Tell the other ranks that this one cannot go on."""
        if self._ddp:
            with suppress(Exception):  # the error that brought us here is the one to be seen
                self._told.zero_()
                self._told[0] = torch.distributed.get_rank(self._group) + 1
                torch.distributed.all_reduce(self._told, op=torch.distributed.ReduceOp.MAX, group=self._group)

    def average(self) -> None:
        """Average the gradients, once all ranks have theirs.

        Raises:
            DryfitError: another rank could not go on.
        """
        if not self._ddp:
            return
        told = [0, *(int(parameter.grad is not None) for parameter in self._parameters)]
        self._told.copy_(torch.tensor(told, dtype=torch.int32))
        torch.distributed.all_reduce(self._told, op=torch.distributed.ReduceOp.MAX, group=self._group)
        failed, *used = self._told.tolist()
        if failed:
            raise DryfitError(
                f"Rank {failed - 1} of {self._world} could not finish its batch, so this rank stops too. The error is "
                f"in that rank's output."
            )
        handles: list[Any] = []
        for parameter in (each for each, is_used in zip(self._parameters, used, strict=True) if is_used):
            if parameter.grad is None:  # on this rank; on another it has one
                parameter.grad = torch.zeros_like(parameter, requires_grad=False)
            parameter.grad /= self._world  # before the sum, as in DDP, so that no sum in fp16 overflows
            handles.append(torch.distributed.all_reduce(parameter.grad, group=self._group, async_op=True))
        for handle in handles:
            handle.wait()

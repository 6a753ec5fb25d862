"""What `accumulate` refuses before it reads the first micro-batch."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import nn

from dryfit.errors import UsageError
from dryfit.train.given import require_one_of
from dryfit.train.normalising import Reduction
from dryfit.train.stepping import Stepper, parameters_of, scheduled
from dryfit.train.synchronising import Sync

Last = Literal["step", "drop", "carry"]


def require_sense(
    stepper: Stepper,
    models: Sequence[nn.Module],
    *,
    steps: int,
    reduction: str,
    last: str,
    sync: str,
    group: Any,
) -> None:
    """Refuse arguments that do not go together.

    Raises:
        UsageError: they do not; the message says which and what to do.
    """
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise UsageError(f"steps={steps!r}: it is the number of micro-batches per optimizer step, an int of 1 or more.")
    require_one_of(reduction, Reduction, "reduction")
    require_one_of(last, Last, "last")
    require_one_of(sync, Sync, "sync")
    clip_norm: Any = stepper.clip_norm
    if clip_norm is not None and not (isinstance(clip_norm, numbers.Real) and float(clip_norm) > 0):
        raise UsageError(f"clip_norm={clip_norm!r}: the largest norm allowed has to be a number above zero.")
    for model in models:
        if type(model).__module__.partition(".")[0] == "deepspeed":
            raise UsageError(
                "A DeepSpeed engine accumulates by itself (gradient_accumulation_steps); accumulate is for plain "
                "PyTorch, DDP and FSDP."
            )
    if any(isinstance(optimizer, torch.optim.LBFGS) for optimizer in stepper.optimizers):
        raise UsageError(
            "LBFGS calls a closure to compute the loss anew within one step, so no window of gradients can be made "
            "before it. Use another optimizer, or accumulate inside the closure."
        )
    _require_schedulers(stepper)
    if stepper.scaler:
        _require_scaler(stepper)
    if stepper.wrappers.fsdp1 and stepper.clip_norm is not None and len(stepper.wrappers.fsdp1) > 1:
        raise UsageError(
            f"The models hold {len(stepper.wrappers.fsdp1)} FullyShardedDataParallel modules side by side, and each "
            f"can only clip its own gradient. Put them under one, or use fully_shard, or leave out clip_norm."
        )
    if stepper.wrappers.has_static_graph and (sync == "last" or stepper.fp32):
        raise UsageError(
            "DistributedDataParallel(static_graph=True) cannot leave out exchanging gradients: PyTorch's no_sync fails "
            "with it, or leaves ranks apart (pytorch/pytorch#143580). Leave out static_graph, or what is asked of "
            "accumulate here: " + ('sync="last".' if sync == "last" else "fp32_gradients.")
        )
    if stepper.fp32:
        _require_fp32(stepper, group)


def _require_schedulers(stepper: Stepper) -> None:
    for scheduler in stepper.schedulers:
        if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            raise UsageError(
                "ReduceLROnPlateau steps by a metric, not by optimizer steps. Leave it out of accumulate and call "
                "scheduler.step(metric) after each evaluation."
            )
        if scheduled(scheduler, stepper.optimizers) not in stepper.optimizers:
            raise UsageError(
                f"{type(scheduler).__name__} is not the schedule of an optimizer that accumulate was given. Make it "
                f"from that optimizer."
            )


def _require_scaler(stepper: Stepper) -> None:
    shared = sum(len(parameters_of([optimizer])) for optimizer in stepper.optimizers) - len(stepper.parameters())
    if shared:
        raise UsageError(
            f"{shared} parameters are in more than one optimizer, and GradScaler unscales the gradients of each by "
            f"itself, so theirs would be unscaled twice. Give each parameter to one optimizer, or leave out the scaler."
        )
    if not stepper.wrappers.fsdp1:
        return
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

    if not isinstance(stepper.scaler, ShardedGradScaler):
        raise UsageError(
            f"{type(stepper.scaler).__name__} looks for infinities in this rank's shards alone, so ranks would skip "
            f"different steps. With FullyShardedDataParallel use torch.distributed.fsdp.sharded_grad_scaler."
            f"ShardedGradScaler."
        )


def _require_fp32(stepper: Stepper, group: Any) -> None:
    assert stepper.fp32 is not None
    if stepper.scaler:
        raise UsageError(
            "fp32_gradients goes with bf16 parameters, whose range needs no GradScaler; leave one of them out."
        )
    if stepper.wrappers.sharded and stepper.fp32.parameters(low=True):
        raise UsageError(
            "FSDP keeps gradients in the dtype of the sharded parameters. For sums in fp32 keep the parameters in fp32 "
            "and give fully_shard a MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32), "
            "instead of fp32_gradients."
        )
    if group is not None and not stepper.wrappers.exchanges:
        raise UsageError(
            "fp32_gradients keeps gradients away until the step, so nothing else can average them over group. Put the "
            "model in DistributedDataParallel."
        )

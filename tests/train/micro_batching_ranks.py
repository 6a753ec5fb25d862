"""What each of two real processes does in `test_micro_batching_ranks`; it saves figures that the test compares."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from tests.train.language import difference
from tests.train.running_out import FailsInBackward, runs_out
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

from dryfit.errors import DryfitError, UsageError
from dryfit.train.micro_batching import micro_batched

ROWS = (8, 12)
Pair = tuple[torch.Tensor, torch.Tensor]


class Net(nn.Module):
    """A convolution, BatchNorm where asked for, and a layer that one rank alone uses; can run out in its backward."""

    def __init__(self, *, norm: bool = False, backward_limit: int = 1 << 30, uses_extra: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        self.norm = nn.BatchNorm2d(4) if norm else nn.Identity()
        self.extra, self.last = nn.Linear(4, 4), nn.Linear(4, 2)
        self.backward_limit, self.uses_extra = backward_limit, uses_extra

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.conv(inputs)).relu().mean((2, 3))
        hidden = FailsInBackward.apply(hidden, len(inputs) > self.backward_limit)
        return self.last(self.extra(hidden) if self.uses_extra else hidden)


def start(rank: int, world: int, folder: str) -> None:
    """The process of one rank: run the cases in order, and save what they give."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world, timeout=timedelta(seconds=30)
    )
    found = {}
    for name, case in CASES.items():
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            found[name] = case(rank)
        found[name]["warnings"] = [type(each.message).__name__ for each in warned if "dryfit" in str(each.category)]
    torch.save(found, Path(folder) / f"rank{rank}")
    torch.distributed.destroy_process_group()


def data(rank: int, seed: int = 0) -> Pair:
    torch.manual_seed(10 * seed + rank)
    return torch.randn(ROWS[rank], 3, 5, 5), torch.randn(ROWS[rank], 2)


def loss_of(model: nn.Module, batch: Pair) -> torch.Tensor:
    return mse_loss(model(batch[0]), batch[1])


def gradients(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


def as_in_ddp(rank: int, where: str, **options: Any) -> dict[str, Any]:
    """Two batches, of which the second adds to the first's gradients; rank 1 runs out of memory, rank 0 does not."""
    plain = DistributedDataParallel(Net(uses_extra=rank == 1), find_unused_parameters=True)
    for seed in range(2):
        loss_of(plain, data(rank, seed)).backward()

    limit = 5 if rank == 1 else 1 << 30
    net = Net(uses_extra=rank == 1, backward_limit=limit if where == "backward" else 1 << 30)
    model = DistributedDataParallel(net, find_unused_parameters=True, **options)

    def step(batch: Pair) -> torch.Tensor:
        loss = loss_of(model, batch)
        if where == "forward":
            runs_out(len(batch[0]), limit)
        return loss

    train_on = micro_batched(step, model)
    for seed in range(2):
        train_on(data(rank, seed))
    found = {"off": difference(gradients(model), gradients(plain)), "micro_batch": train_on.micro_batch}
    model.zero_grad()
    plain.zero_grad()
    for each in (model, plain):  # an ordinary step of DDP afterwards is as ever
        net.backward_limit = 1 << 30
        loss_of(each, data(rank, 3)).backward()
    return {**found, "off afterwards": difference(gradients(model), gradients(plain))}


def with_batch_norm(rank: int) -> dict[str, Any]:
    """Each batch begins with the statistics of rank 0, so what the pieces of rank 1 did in the first one is gone."""
    plain, model = (DistributedDataParallel(Net(norm=True)) for _ in range(2))
    train_on = micro_batched(lambda batch: loss_of(model, batch), model)
    for seed in range(3):
        train_on.micro_batch = 5 if rank == 1 and seed == 0 else None
        train_on(data(rank, seed))
        loss_of(plain, data(rank, seed)).backward()
    return {"off": difference([*model.module.norm.buffers()], [*plain.module.norm.buffers()])}


def one_cannot_go_on(rank: int, error: Callable[[], None]) -> dict[str, Any]:
    model = DistributedDataParallel(Net())

    def step(batch: Pair) -> torch.Tensor:
        if rank == 1:
            error()
        return loss_of(model, batch)

    began = time.monotonic()
    try:
        micro_batched(step, model)(data(rank))
    except Exception as raised:
        return {"error": raised_by(raised), "seconds": time.monotonic() - began, "left": len(gradients(model))}
    return {}


def raised_by(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def a_mistake() -> None:
    raise ValueError("a mistake in the step")


def refused(rank: int) -> dict[str, Any]:
    def say(*models: nn.Module) -> str:
        try:
            micro_batched(lambda batch: loss_of(models[0], batch), models)(data(rank))
        except (UsageError, DryfitError) as error:
            return str(error)
        return ""

    sharded = nn.Linear(4, 4)
    fully_shard(sharded, mesh=torch.distributed.init_device_mesh("cpu", (2,)))
    return {
        "FSDP": say(sharded),
        "SyncBatchNorm": say(DistributedDataParallel(Net()), nn.Sequential(nn.SyncBatchNorm(4))),
    }


CASES: dict[str, Callable[[int], dict[str, Any]]] = {
    "forward": partial(as_in_ddp, where="forward"),
    "backward": partial(as_in_ddp, where="backward"),
    "bucket views": partial(as_in_ddp, where="backward", gradient_as_bucket_view=True),
    "BatchNorm": with_batch_norm,
    "not even one": partial(one_cannot_go_on, error=partial(runs_out, 1, 0)),
    "another error": partial(one_cannot_go_on, error=a_mistake),
    "refused": refused,
}

"""What each of two processes does in `test_two_pass`: InfoNCE over both ranks' pairs, in DDP and FSDP2."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed
from tests.train.processes import FSDP2_RUNS_ON_THE_HOST
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.nn.functional import all_gather
from torch.nn.functional import cross_entropy, normalize
from torch.nn.parallel import DistributedDataParallel

from dryfit.train import two_pass

PAIRS = 6  # of each rank


class Encoder(nn.Module):
    """Two towers and a temperature, as CLIP has it."""

    def __init__(self) -> None:
        super().__init__()
        self.image, self.text = (nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)) for _ in range(2))
        self.scale = nn.Parameter(torch.tensor([1.5]))  # FSDP2 shards no numbers

    def forward(self, image: torch.Tensor, text: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return normalize(self.image(image), dim=-1), normalize(self.text(text), dim=-1), self.scale.exp().squeeze()


def encoder() -> Encoder:
    torch.manual_seed(0)
    return Encoder()


def pairs_of(rank: int) -> dict[str, torch.Tensor]:
    own = torch.Generator().manual_seed(rank)
    return {kind: torch.randn(PAIRS, 8, generator=own) for kind in ("image", "text")}


def info_nce(outputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> torch.Tensor:
    images, texts, scale = outputs
    scores, targets = scale * images @ texts.T, torch.arange(len(images))
    return (cross_entropy(scores, targets) + cross_entropy(scores.T, targets)) / 2


def info_nce_of_all_ranks(outputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> torch.Tensor:
    images, texts, scale = outputs
    return info_nce((torch.cat(all_gather(images)), torch.cat(all_gather(texts)), scale))


def gradients_of(model: nn.Module) -> list[torch.Tensor]:
    gradients = [parameter.grad for parameter in model.parameters()]
    return [each.full_tensor() if hasattr(each, "full_tensor") else each for each in gradients]


def start(rank: int, world: int, folder: str) -> None:
    """The process of one rank: save gradients, and in how many backwards DDP exchanged them."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world, timeout=timedelta(seconds=60)
    )
    found: dict[str, Any] = {}
    ddp = DistributedDataParallel(encoder())
    holds = 0
    no_sync = ddp.no_sync

    def counted() -> Any:
        nonlocal holds
        holds += 1
        return no_sync()

    with mock.patch.object(ddp, "no_sync", counted):
        # ranks have 2 and 3 pieces, and still exchange together
        found["DDP, loss"] = two_pass(ddp, pairs_of(rank), info_nce_of_all_ranks, micro_batch=3 - rank)
    found["DDP"], found["DDP, holds"] = gradients_of(ddp), holds
    if FSDP2_RUNS_ON_THE_HOST:
        sharded = encoder()
        fully_shard(sharded, mesh=torch.distributed.init_device_mesh("cpu", (world,)))
        found["FSDP2, loss"] = two_pass(sharded, pairs_of(rank), info_nce_of_all_ranks, micro_batch=2)
        found["FSDP2"] = gradients_of(sharded)
    torch.save(found, Path(folder) / f"rank{rank}")
    torch.distributed.destroy_process_group()

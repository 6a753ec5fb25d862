"""What each of two processes does in `test_checkpointing_models`: DDP and FSDP2, checkpointed and plain."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from tests.train.processes import FSDP2_RUNS_ON_THE_HOST
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn.parallel import DistributedDataParallel

from dryfit.train import checkpoint_blocks


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.BatchNorm1d(8), nn.Linear(8, 16), nn.Linear(16, 8)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.dropout(self.down(torch.relu(self.up(self.norm(x)))))


def model_of() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), Block(), Block(), Block(), nn.Linear(8, 4))


def in_ddp(model: nn.Module) -> nn.Module:
    return DistributedDataParallel(model)


def in_fsdp1(model: nn.Module) -> nn.Module:
    of_blocks = ModuleWrapPolicy({Block})
    return FullyShardedDataParallel(
        model, auto_wrap_policy=of_blocks, use_orig_params=True, device_id=torch.device("cpu")
    )


def in_fsdp2(model: nn.Module) -> nn.Module:
    mesh = torch.distributed.init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    for block in model[1:4]:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


WRAPS = {"DDP": in_ddp, "FSDP": in_fsdp1, **({"FSDP2": in_fsdp2} if FSDP2_RUNS_ON_THE_HOST else {})}


def trained(model: nn.Module, rank: int) -> list[torch.Tensor]:
    """Gradients and buffers after two steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        torch.manual_seed(10 * rank + step)
        optimizer.zero_grad()
        model(torch.randn(6, 8)).square().mean().backward()
        optimizer.step()
    gradients = [each.grad for each in model.parameters() if each.grad is not None]  # FSDP has some on one rank alone
    return [each.full_tensor() if hasattr(each, "full_tensor") else each for each in [*gradients, *model.buffers()]]


def start(rank: int, world: int, folder: str) -> None:
    """The process of one rank: save whether checkpointing before and after wrapping changes nothing."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world, timeout=timedelta(seconds=60)
    )
    found: dict[str, Any] = {}
    for name, wrap in WRAPS.items():
        plain = trained(wrap(model_of()), rank)
        before = model_of()
        checkpoint_blocks(before)
        after = wrap(model_of())
        with checkpoint_blocks(after) as checkpointed:
            found[f"{name}, blocks"], found[f"{name}, said"] = checkpointed.blocks, str(checkpointed)
            for way, model in (("before", wrap(before)), ("after", after)):
                found[f"{name}, {way}"] = all(map(torch.equal, trained(model, rank), plain))
        found[f"{name}, undone"] = not any("forward" in vars(module) for module in after.modules())
        batch = torch.randn(4, 8)
        found[f"{name}, verified"] = checkpoint_blocks(
            after, blocks=Block, verify=batch, loss_of=lambda model, batch: model(batch).square().mean()
        ).verified
    torch.save(found, Path(folder) / f"rank{rank}")
    torch.distributed.destroy_process_group()

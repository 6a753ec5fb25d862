"""A process group of one rank, so that a program with DistributedDataParallel runs alone.

What one rank allocates does not depend on how many there are: its buckets hold one copy of the gradients in any world.
NCCL's own buffers are not PyTorch's, and in none of the measured figures that these programs are for.
"""

import torch
import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def join_world_of_one() -> None:
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("nccl", store=store, rank=0, world_size=1)


def wrapped(model: nn.Module) -> DistributedDataParallel:
    """As mmcv wraps a model: buffers are not broadcast."""
    join_world_of_one()
    return DistributedDataParallel(model, device_ids=[0], broadcast_buffers=False)

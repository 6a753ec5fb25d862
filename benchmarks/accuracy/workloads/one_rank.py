"""One rank of a world, as torchrun starts it: `dryfit run --world 8 PROGRAM` plays it alone.

NCCL's own buffers are not PyTorch's, and in none of the measured figures that these programs are for.
"""

import os

import torch
import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def join_world() -> int:
    """Take this rank's card and join the others; gives the number of the card."""
    card = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(card)
    torch.distributed.init_process_group("nccl")
    return card


def wrapped(model: nn.Module) -> DistributedDataParallel:
    """As mmcv wraps a model, which is on this rank's card: buffers are not broadcast."""
    return DistributedDataParallel(model, device_ids=[torch.cuda.current_device()], broadcast_buffers=False)

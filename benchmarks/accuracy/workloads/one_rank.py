"""One rank of a world, as torchrun starts it: `dryfit run --world 8 PROGRAM` plays it alone.

NCCL's own buffers are not PyTorch's, and in none of the measured figures that these programs are for.
"""

import os
from collections.abc import Callable

import torch
import torch.distributed
from torch import Tensor, nn
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


def train_recognizer(
    model: nn.Module, optimizer: torch.optim.Optimizer, forward: Callable[[], Tensor], steps: int
) -> None:
    """As mmaction2 trains one: mmcv's hook sets gradients to zero after the forward pass, in place, and clips them."""
    for _ in range(steps):
        loss = forward()
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 40, foreach=False)
        optimizer.step()

"""A language model under FSDP2 with two micro-batches a step; what it keeps whole for a time is said in words.

"kept": a block's parameters from the forward pass to the backward pass; "whole": gradients of the first micro-batch.
"""

import os

import torch
from language_model import Model, batch_of, loss_of
from torch import distributed
from torch.distributed.fsdp import fully_shard


def main(*words):
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group("nccl")
    kept = {"reshard_after_forward": False} if "kept" in words else {}
    model = Model()
    for block in model.blocks:
        fully_shard(block, **kept)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(5):
        optimizer.zero_grad()
        for micro_batch in range(2):
            model.set_requires_gradient_sync("whole" not in words or micro_batch == 1)
            loss_of(model, batch_of(4)).backward()
        optimizer.step()
    distributed.destroy_process_group()

"""A language model with its loop, made on the host or on the card; sharded by FSDP2 over so many cards, if asked to.

Its rank then plays alone: rehearse it in a world of as many.
"""

import torch
from language_model import Model, train


def main(place="host", cards=""):
    if cards:
        from torch.distributed.fsdp import fully_shard

        torch.cuda.set_device(0)
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("nccl", store=store, rank=0, world_size=int(cards))
    with torch.device("cuda" if place == "card" else "cpu"):
        model = Model()
    if cards:
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
    else:
        model.to("cuda")
    groups = [
        {"params": [each for each in model.parameters() if each.dim() > 1], "weight_decay": 0.1},
        {"params": [each for each in model.parameters() if each.dim() <= 1], "weight_decay": 0.0},
    ]
    train(model, torch.optim.AdamW(groups, lr=1e-3))

"""Programs under DDP that are not as the usual ones: `main` runs the one that is named."""

import os

import torch
from language_model import Model, batch_of, loss_of, train
from torch import distributed
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel


class Wrapped(DistributedDataParallel):
    pass


def early_optimizer():
    with torch.device("cuda"):
        model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    train(DistributedDataParallel(model), optimizer)


def hook():
    model = DistributedDataParallel(Model().cuda())
    model.register_comm_hook(None, bf16_compress_hook)
    train(model, torch.optim.AdamW(model.parameters(), lr=1e-3))


def own_class():
    model = Wrapped(Model().cuda())
    train(model, torch.optim.AdamW(model.parameters(), lr=1e-3))


def module_and_no_sync():
    model = DistributedDataParallel(Model().cuda())
    optimizer = torch.optim.AdamW(model.module.parameters(), lr=1e-3)
    for _ in range(5):
        optimizer.zero_grad()
        with model.no_sync():
            loss_of(model, batch_of(4)).backward()
        loss_of(model, batch_of(4)).backward()
        optimizer.step()


def main(name):
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group("nccl")
    programs = {each.__name__: each for each in (early_optimizer, hook, own_class, module_and_no_sync)}
    programs[name]()
    distributed.destroy_process_group()

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def wrapped(model):
    model = DistributedDataParallel(model)
    if isinstance(model, nn.DataParallel):
        model = model.module
    return nn.DataParallel(model, device_ids=[0])


def step(model, batch):
    shown = nn.DataParallel(model)
    names = list(shown.module.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(batch).sum().backward()
    optimizer.step()
    return names

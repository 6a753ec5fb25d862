import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def wrapped(model):
    model = DistributedDataParallel(model)
    if isinstance(model, nn.DataParallel):
        model = model.module
    return nn.DataParallel(model, device_ids=[0])


def make_optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def test_the_wrapper_is_taken_off(model):
    assert nn.DataParallel(model).module is model

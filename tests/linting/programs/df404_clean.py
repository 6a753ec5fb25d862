from torch import nn
from torch.nn.parallel import DistributedDataParallel


def wrapped(model):
    model = DistributedDataParallel(model)
    if isinstance(model, nn.DataParallel):
        model = model.module
    return nn.DataParallel(model, device_ids=[0])

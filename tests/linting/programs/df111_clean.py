import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset


def toy():
    x = torch.randn(200, 2).cuda()
    return DataLoader(TensorDataset(x, x.sum(1)), batch_size=20)


def on_the_host(path):
    data = torch.from_numpy(np.load(path))
    loader = DataLoader(TensorDataset(data), batch_size=64, pin_memory=True)
    for (batch,) in loader:
        yield batch.cuda(non_blocking=True)


def to_a_type(path):
    data = torch.from_numpy(np.load(path)).to(torch.float32)
    return DataLoader(TensorDataset(data.to("cpu")), batch_size=64)


def not_in_batches(path):
    return TensorDataset(torch.load(path).cuda())

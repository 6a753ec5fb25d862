import torch
from torch.utils.data import DataLoader, Dataset


class OnTheHost(Dataset):
    def __getitem__(self, index):
        return torch.tensor(self.images[index]).to(torch.float32)


class InTheProcess(Dataset):
    def __getitem__(self, index):
        return self.labels[index].cuda()


def loaders():
    loader = DataLoader(OnTheHost(), num_workers=4)
    for batch in loader:
        yield batch.cuda()
    yield DataLoader(InTheProcess(), num_workers=0)
    yield DataLoader(InTheProcess())

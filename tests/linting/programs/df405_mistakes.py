import torch
from torch.utils.data import DataLoader, Dataset

DEVICE = torch.device("cuda:0")


class Images(Dataset):
    def __getitem__(self, index):
        return torch.tensor(self.images[index]).to(DEVICE)  # <- DF405


class Labels(Dataset):
    def __getitem__(self, index):
        return self.labels[index].cuda(), index  # <- DF405


def collate(batch):
    return torch.stack(batch).cuda()  # <- DF405


def loaders(other):
    images = Images()
    return (
        DataLoader(images, batch_size=8, num_workers=4),
        DataLoader(Labels(), num_workers=2),
        DataLoader(other, num_workers=1, collate_fn=collate),
    )

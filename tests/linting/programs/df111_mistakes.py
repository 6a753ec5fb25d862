import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def from_arrays(path):
    data = np.load(path)
    images = torch.from_numpy(data["images"]).float().to(device)  # <- DF111
    labels = torch.from_numpy(data["labels"]).to(device)
    dataset = TensorDataset(images, labels)
    return DataLoader(dataset, batch_size=64, shuffle=True)


def in_place(path):
    tokens = torch.load(path)
    return DataLoader(
        TensorDataset(tokens.cuda()),  # <- DF111
        batch_size=32,
    )

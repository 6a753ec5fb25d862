"""What the programs train: a small classifier, and batches that lie in the host's memory until they are used."""

import torch
from torch import nn

WIDTH, CLASSES, BATCH = 256, 512, 256


def classifier(layers=4):
    blocks = [part for _ in range(layers) for part in (nn.Linear(WIDTH, WIDTH), nn.GELU())]
    return nn.Sequential(*blocks, nn.Linear(WIDTH, CLASSES)).cuda()


def batches(count, batch=BATCH):
    for _ in range(count):
        yield torch.randn(batch, WIDTH).cuda(), torch.randint(CLASSES, (batch,)).cuda()


def sequences(count, batch=32, length=16):
    for _ in range(count):
        yield torch.randn(length, batch, WIDTH).cuda()

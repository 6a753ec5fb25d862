"""`language_model` with a fused optimizer, written by hand."""

import torch
from language_model import Model, train


def main():
    model = Model().cuda()
    train(model, torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True))

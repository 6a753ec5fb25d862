"""`language_model` with torch's Adafactor, written by hand."""

import torch
from language_model import Model, train


def main():
    model = Model().cuda()
    train(model, torch.optim.Adafactor(model.parameters(), lr=1e-3, weight_decay=0.01))

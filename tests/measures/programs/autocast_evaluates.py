"""`language_model` that is also evaluated after every step, beside a frozen teacher of its own kind."""

import torch
from language_model import BATCH, Model, batch_of
from torch.nn import functional as F


def loss_of_logits(logits, tokens):
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def main():
    model, teacher = Model().cuda(), Model().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(3):
        optimizer.zero_grad()
        tokens = batch_of(BATCH)
        logits = model(tokens[:, :-1])
        with torch.no_grad():
            target = teacher(tokens[:, :-1])
        loss = F.mse_loss(logits, target)
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            tokens = batch_of(2 * BATCH)
            logits = model(tokens[:, :-1])
            print(loss_of_logits(logits, tokens).item())
        model.train()

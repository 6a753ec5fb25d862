"""A loop that makes its batches itself, of a number from the command line."""

import torch
from language_model import Model, batch_of, loss_of


def main(batch="16", steps="5"):
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(int(steps)):
        loss = loss_of(model, batch_of(int(batch)))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

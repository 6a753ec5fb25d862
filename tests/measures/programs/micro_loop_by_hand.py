"""`micro_loop` with four micro-batches, written by hand."""

import torch
from language_model import Model, batch_of, loss_of

COUNT = 4


def main(batch="16", steps="20"):
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for number in range(1, int(steps) + 1):
        loss = loss_of(model, batch_of(int(batch)))
        (loss / COUNT).backward()
        if number % COUNT == 0:
            optimizer.step()
            optimizer.zero_grad()

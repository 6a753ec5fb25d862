"""`language_model`, whose loop has names for what it makes."""

import torch
from language_model import BATCH, Model, batch_of
from torch.nn import functional as F


def main(batch=BATCH, *_):
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(5):
        optimizer.zero_grad()
        tokens = batch_of(int(batch))
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()

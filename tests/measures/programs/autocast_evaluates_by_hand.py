"""`autocast_evaluates` under autocast, written by hand."""

import torch
from autocast_evaluates import loss_of_logits
from language_model import BATCH, Model, batch_of
from torch.nn import functional as F


def main():
    model, teacher = Model().cuda(), Model().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(3):
        optimizer.zero_grad()
        tokens = batch_of(BATCH)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(tokens[:, :-1])
            with torch.no_grad():
                target = teacher(tokens[:, :-1])
            loss = F.mse_loss(logits, target)
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            tokens = batch_of(2 * BATCH)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                logits = model(tokens[:, :-1])
            print(loss_of_logits(logits, tokens).item())
        model.train()

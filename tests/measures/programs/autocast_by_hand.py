"""`autocast_loop` under autocast, written by hand."""

import torch
from language_model import BATCH, Model, batch_of, loss_of


def main(batch=BATCH):
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(5):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = loss_of(model, batch_of(int(batch)))
        loss.backward()
        optimizer.step()

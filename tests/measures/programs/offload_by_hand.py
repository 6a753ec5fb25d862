"""`language_model` with activations kept on the host, written by hand."""

import torch
from language_model import BATCH, Model, batch_of, loss_of


def offloaded_loss_of(model, tokens):
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        return loss_of(model, tokens)


def main(batch=BATCH):
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(5):
        optimizer.zero_grad()
        offloaded_loss_of(model, batch_of(int(batch))).backward()
        optimizer.step()

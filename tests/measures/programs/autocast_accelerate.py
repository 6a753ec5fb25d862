"""`language_model` prepared by Accelerate; its Accelerator may be given more settings, as JSON."""

import json

import torch
from accelerate import Accelerator
from language_model import BATCH, Model, batch_of, loss_of


def main(settings="{}"):
    accelerator = Accelerator(**json.loads(settings))
    model = Model()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    for _ in range(4):
        optimizer.zero_grad()
        accelerator.backward(loss_of(model, batch_of(BATCH)))
        optimizer.step()

"""Accelerate's loop with a small language model, in batches of 16: as many micro-batches as the argument says."""

import contextlib

import torch
from accelerate import Accelerator
from language_model import CONTEXT, VOCABULARY, Model, loss_of
from torch.utils.data import DataLoader, TensorDataset


def main(count="1", accumulates="accumulates"):
    accelerator = Accelerator(gradient_accumulation_steps=int(count), mixed_precision="fp16")
    tokens = TensorDataset(torch.randint(VOCABULARY, (64, CONTEXT + 1)))
    model = Model()
    model, optimizer, loader = accelerator.prepare(
        model,
        torch.optim.AdamW(model.parameters(), lr=1e-3),
        DataLoader(tokens, batch_size=16 // int(count), shuffle=True),
    )
    for (batch,) in loader:
        with accelerator.accumulate(model) if accumulates else contextlib.nullcontext():
            loss = loss_of(model, batch)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

"""`language_model` with its blocks checkpointed and what they keep on the host, written by hand."""

import torch
from checkpoint_by_hand import Checkpointed
from language_model import batch_of
from offload_by_hand import offloaded_loss_of


def main():
    model = Checkpointed().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(5):
        optimizer.zero_grad()
        offloaded_loss_of(model, batch_of(8)).backward()
        optimizer.step()

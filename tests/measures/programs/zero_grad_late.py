"""`language_model` whose gradients are zeroed after the forward pass, over two micro-batches, or freed before it.

"late" frees them after the first forward pass, "zeros" fills them with zeros, "early" is what the measure does.
"""

import torch
from language_model import Model, batch_of, loss_of


def main(how="late"):
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(5):
        for micro_batch in range(2):
            tokens = batch_of(4)
            if how == "early" and micro_batch == 0:
                optimizer.zero_grad()
            loss = loss_of(model, tokens) / 2
            if micro_batch == 0 and how != "early":
                optimizer.zero_grad(set_to_none=how == "late")
            loss.backward()
        optimizer.step()

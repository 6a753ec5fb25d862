"""`language_model` with its loss in chunks, written by hand."""

import language_model
import torch
from cross_entropy_chunked import chunked_cross_entropy
from language_model import BATCH, batch_of
from torch import nn


class Model(language_model.Model):
    def __init__(self):
        super().__init__()
        self.of_loss, self.head = self.head, nn.Identity()


def main(batch=BATCH, chunks=8, autocast=""):
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(5):
        optimizer.zero_grad()
        tokens = batch_of(int(batch))
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=bool(autocast)):
            hidden = model(tokens[:, :-1])
            loss = chunked_cross_entropy(hidden, model.of_loss.weight, tokens[:, 1:], chunks=int(chunks))
        loss.backward()
        optimizer.step()

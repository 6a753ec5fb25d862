"""`language_model` with weights in bfloat16, written by hand."""

import torch
from language_model import BATCH, Model, train


def main(batch=BATCH):
    model = Model().to(torch.bfloat16).cuda()
    train(model, torch.optim.AdamW(model.parameters(), lr=1e-3), int(batch))

"""`language_model` with its embeddings and its first two blocks frozen, written by hand."""

import torch
from language_model import LAYERS, Model, train


def main():
    model = Model().cuda()
    for module in (model.embed, model.place, *model.blocks[: LAYERS // 2]):
        module.requires_grad_(False)
    train(model, torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=1e-3))

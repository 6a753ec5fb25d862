"""`language_model` with the snippet of a measure between the making of its model and of its optimizer."""

import language_model
import torch

from dryfit.measures.catalogue import measures_of


def main(name):
    model = language_model.Model().cuda()
    ((measure, _),) = measures_of([name])
    exec(measure.snippet("pytorch"), {"model": model, "torch": torch, "Block": language_model.Block})
    language_model.train(model, torch.optim.AdamW(model.parameters(), lr=1e-3))

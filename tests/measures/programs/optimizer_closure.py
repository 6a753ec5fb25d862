"""`language_model` with Adam and a closure; its optimizer is chosen by name."""

import torch
from language_model import Model, batch_of, loss_of


def made(which, parameters):
    if which == "plain":
        return torch.optim.Adam(parameters, lr=1e-3)
    if which == "fused":
        return torch.optim.Adam(parameters, lr=1e-3, fused=True)
    if which == "8bit":
        import bitsandbytes

        return bitsandbytes.optim.Adam8bit(parameters, lr=1e-3)
    from optimizer_on_host import OffloadedAdam

    assert which == "host"
    return OffloadedAdam(parameters, lr=1e-3, fused=True)


def main(which="plain"):
    model = Model().cuda()
    optimizer = made(which, model.parameters())

    def closure():
        optimizer.zero_grad()
        loss = loss_of(model, batch_of(8))
        loss.backward()
        return loss

    for _ in range(5):
        optimizer.step(closure)

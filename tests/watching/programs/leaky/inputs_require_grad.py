# DF108 losses, device
"""Inputs require gradients, for saliency, and the losses are kept: each holds its inputs and their gradients."""

import torch
from parts import batches, classifier
from torch.nn import functional


def main():
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters())
    losses, saliency = [], 0.0
    for inputs, targets in batches(40):
        inputs.requires_grad_()  # <- holder
        loss = functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        saliency += inputs.grad.abs().mean().item()
        losses.append(loss)  # <- holder
    print(saliency, len(losses))


if __name__ == "__main__":
    main()

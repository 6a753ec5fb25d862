# DF101 smoothed, host
"""A smoothed loss for the progress bar, which is a tensor with the graph of all steps so far."""

import torch
from parts import batches, classifier
from torch.nn import functional


def main():
    model = classifier(layers=20)
    optimizer = torch.optim.AdamW(model.parameters())
    smoothed = None
    for inputs, targets in batches(40):
        loss = functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        smoothed = loss if smoothed is None else 0.9 * smoothed + 0.1 * loss  # <- holder


if __name__ == "__main__":
    main()

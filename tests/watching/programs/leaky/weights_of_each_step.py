# DF102 checkpoints, device
"""A copy of the weights is kept of each step, on the card."""

import torch
from parts import batches, classifier
from torch.nn import functional


def main():
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters())
    checkpoints = []
    for inputs, targets in batches(30):
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        checkpoints.append({name: value.clone() for name, value in model.state_dict().items()})  # <- holder


if __name__ == "__main__":
    main()

# DF101 validation_loss, device; also DF201
"""The evaluation sums its losses, with gradients on: no backward pass lets go of what the graph has saved."""

import torch
from parts import batches, classifier
from torch.nn import functional


def evaluate(model):
    model.eval()
    validation_loss = 0.0
    for inputs, targets in batches(8):
        outputs = model(inputs)
        validation_loss += functional.cross_entropy(outputs, targets)  # <- holder
    model.train()
    return validation_loss.item() / 8


def main():
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters())
    for epoch in range(4):
        for inputs, targets in batches(2):
            optimizer.zero_grad()
            functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
        print(epoch, evaluate(model))


if __name__ == "__main__":
    main()

# DF201 *, device
"""The evaluation keeps nothing, and still pays for the graph of each batch: gradients are on."""

import torch
from parts import batches, classifier
from torch.nn import functional


def accuracy(model):
    model.eval()
    right = 0
    for inputs, targets in batches(6):
        outputs = model(inputs)  # <- holder
        right += (outputs.argmax(dim=1) == targets).sum().item()
    model.train()
    return right


def main():
    model = classifier(layers=12)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        for inputs, targets in batches(2):
            optimizer.zero_grad()
            functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
        print(accuracy(model))


if __name__ == "__main__":
    main()

# DF102 seen, device
"""A function remembers in a default argument, which lives as long as the function."""

import torch
from parts import batches, classifier
from torch.nn import functional


def remember(outputs, seen=[]):  # noqa: B006
    seen.append(outputs.detach())  # <- holder
    return len(seen)


def main():
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters())
    for inputs, targets in batches(30):
        outputs = model(inputs)
        optimizer.zero_grad()
        functional.cross_entropy(outputs, targets).backward()
        optimizer.step()
        remember(outputs)


if __name__ == "__main__":
    main()

# DF110 schedulers, device
"""Each epoch has an optimizer of its own, and its scheduler, which holds it, is kept in a list."""

import torch
from parts import batches, classifier
from torch.nn import functional


def main():
    model = classifier()
    schedulers = []
    for epoch in range(20):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3 / (epoch + 1))  # <- holder
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 2)
        schedulers.append(scheduler)  # <- holder
        for inputs, targets in batches(2):
            optimizer.zero_grad()
            functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
            scheduler.step()


if __name__ == "__main__":
    main()

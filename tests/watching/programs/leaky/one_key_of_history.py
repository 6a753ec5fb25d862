# DF101 history["loss"], host
"""Of a history of several lists one keeps losses with their graphs; the others, below it, keep numbers."""

from collections import defaultdict

import torch
from parts import batches, classifier
from torch.nn import functional


def main():
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters())
    history = defaultdict(list)
    for inputs, targets in batches(30):
        loss = functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history["loss"].append(loss)  # <- holder
        history["rate"].append(optimizer.param_groups[0]["lr"])
        history["size"].append(len(inputs))


if __name__ == "__main__":
    main()

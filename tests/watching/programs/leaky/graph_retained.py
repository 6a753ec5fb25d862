# DF105 losses, device
"""backward keeps the graph for no reason, and the losses are kept: all that each graph has saved stays."""

import torch
from parts import batches, classifier
from torch.nn import functional


def main():
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters())
    losses = []
    for inputs, targets in batches(40):
        loss = functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward(retain_graph=True)  # <- holder
        optimizer.step()
        losses.append(loss)  # <- holder
    print(sum(losses) / len(losses))


if __name__ == "__main__":
    main()

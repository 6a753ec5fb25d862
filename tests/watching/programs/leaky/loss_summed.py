# DF101 total_loss, host
"""The loss is summed for the log: each sum keeps the graph of every step before."""

import torch
from parts import batches, classifier
from torch.nn import functional


def main():
    model = classifier(layers=20)
    optimizer = torch.optim.AdamW(model.parameters())
    total_loss = 0
    for step, (inputs, targets) in enumerate(batches(40), start=1):
        loss = functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total_loss += loss  # <- holder
        if step % 10 == 0:
            print(f"mean loss {total_loss / step:.4f}")


if __name__ == "__main__":
    main()

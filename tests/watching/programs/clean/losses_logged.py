"""Losses are logged as numbers, and gathered on the card for an epoch at a time."""

import torch
from parts import batches, classifier
from torch.nn import functional


def main():
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters())
    history, of_the_epoch, total = [], [], 0.0
    for step, (inputs, targets) in enumerate(batches(40), start=1):
        loss = functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        history.append(float(loss))
        of_the_epoch.append(loss.detach())
        if step % 4 == 0:
            print(torch.stack(of_the_epoch).mean().item(), total / step)
            of_the_epoch.clear()


if __name__ == "__main__":
    main()

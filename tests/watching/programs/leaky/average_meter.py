# DF103 losses.sum | self.sum, host
"""The meter of many training scripts, given the loss itself where it wants a number."""

import torch
from parts import batches, classifier
from torch.nn import functional


class AverageMeter:
    def __init__(self):
        self.value = self.average = self.sum = self.count = 0

    def update(self, value, count=1):
        self.value = value
        self.sum += value * count  # <- holder
        self.count += count
        self.average = self.sum / self.count


def train(model, optimizer):
    losses = AverageMeter()
    for inputs, targets in batches(40):
        loss = functional.cross_entropy(model(inputs), targets)
        losses.update(loss, len(targets))  # <- holder
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses


if __name__ == "__main__":
    model = classifier(layers=20)
    print(train(model, torch.optim.SGD(model.parameters(), lr=0.1)).average)

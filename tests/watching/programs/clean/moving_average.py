"""An exponential moving average of the weights, and one of the loss, on the card."""

import copy

import torch
from parts import batches, classifier
from torch.nn import functional


class Average:
    def __init__(self, model, decay=0.99):
        self.model, self.decay = copy.deepcopy(model).requires_grad_(False), decay
        self.loss = torch.zeros((), device="cuda")

    @torch.no_grad()
    def update(self, model, loss):
        for mine, new in zip(self.model.parameters(), model.parameters(), strict=True):
            mine.lerp_(new, 1 - self.decay)
        self.loss = self.decay * self.loss + (1 - self.decay) * loss.detach()


def main():
    model = classifier()
    average = Average(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for inputs, targets in batches(40):
        loss = functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update(model, loss)
    print(average.loss.item())


if __name__ == "__main__":
    main()

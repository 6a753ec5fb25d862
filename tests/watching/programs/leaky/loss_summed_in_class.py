# DF101 self.running_loss, host
"""The same in a trainer's method, as an attribute, and not by `+=`."""

import torch
from parts import batches, classifier
from torch.nn import functional


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        self.running_loss = torch.zeros((), device="cuda")

    def step(self, inputs, targets):
        loss = functional.cross_entropy(self.model(inputs), targets)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.running_loss = self.running_loss + loss  # <- holder

    def fit(self, data):
        for inputs, targets in data:
            self.step(inputs, targets)
        return self.running_loss


if __name__ == "__main__":
    print(Trainer(classifier(layers=20)).fit(batches(40)))

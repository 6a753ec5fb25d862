"""A teacher without gradients, a queue of keys of fixed size that is written in place, and the last batch kept."""

import copy

import torch
from parts import BATCH, CLASSES, batches, classifier
from torch import nn
from torch.nn import functional


class Contrast(nn.Module):
    def __init__(self, size=4 * BATCH):
        super().__init__()
        self.student = classifier()
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)
        self.register_buffer("queue", torch.randn(size, CLASSES, device="cuda"))
        self.at = 0

    def forward(self, inputs):
        with torch.no_grad():
            keys = functional.normalize(self.teacher(inputs), dim=1)
        queries = functional.normalize(self.student(inputs), dim=1)
        logits = torch.cat([(queries * keys).sum(dim=1, keepdim=True), queries @ self.queue.clone().T], dim=1)
        with torch.no_grad():
            self.queue[self.at : self.at + BATCH] = keys
        self.at = (self.at + BATCH) % len(self.queue)
        return logits / 0.07


class Trainer:
    last_batch = None

    def fit(self, model):
        optimizer = torch.optim.SGD(model.student.parameters(), lr=0.03)
        for inputs, _ in batches(30):
            self.last_batch = inputs, model(inputs)
            loss = functional.cross_entropy(self.last_batch[1], torch.zeros(BATCH, dtype=torch.long, device="cuda"))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    Trainer().fit(Contrast())

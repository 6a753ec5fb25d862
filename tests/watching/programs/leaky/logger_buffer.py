# DF102 self.buffer | self.logger.buffer, device
"""A logger within a trainer keeps what it is told until somebody writes it out: among it tensors."""

from collections import defaultdict

import torch
from parts import batches, classifier
from torch.nn import functional


class Logger:
    def __init__(self):
        self.buffer = defaultdict(list)

    def log(self, **values):
        for name, value in values.items():
            self.buffer[name].append(value)  # <- holder


class Trainer:
    def __init__(self):
        self.model = classifier()
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.logger = Logger()

    def train(self):
        for inputs, targets in batches(40):
            logits = self.model(inputs)
            loss = functional.cross_entropy(logits, targets)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.logger.log(confidence=logits.detach().softmax(dim=1), count=len(targets))


if __name__ == "__main__":
    Trainer().train()

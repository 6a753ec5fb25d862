# DF109 self.last_error, device
"""A trainer keeps the error of the batch that did not fit: it does not grow, and 64 MiB of its frames stay taken."""

import torch
from parts import WIDTH, batches, classifier
from torch.nn import functional


class Trainer:
    def __init__(self):
        self.model = classifier()
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.last_error = None

    def forward(self, inputs, targets, copies):
        wide = inputs.repeat(256, 1)
        if copies:
            wide = torch.cat([wide, torch.empty(copies << 30, WIDTH, device="cuda")])
        return functional.cross_entropy(self.model(inputs), targets) + 0 * wide.mean()

    def step(self, inputs, targets):
        try:
            loss = self.forward(inputs, targets, copies=1 if self.last_error is None else 0)
        except torch.cuda.OutOfMemoryError as error:
            self.last_error = error  # <- holder
            return
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


if __name__ == "__main__":
    trainer = Trainer()
    for inputs, targets in batches(40):
        trainer.step(inputs, targets)

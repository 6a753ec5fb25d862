# DF101 self.records, host
"""A logging handler keeps its records, and each of them the loss that it is to print one day."""

import logging

import torch
from parts import batches, classifier
from torch.nn import functional

log = logging.getLogger("training")


class Keeping(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)  # <- holder


def main():
    log.setLevel(logging.INFO)
    log.propagate = False
    log.addHandler(Keeping())
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters())
    for inputs, targets in batches(30):
        loss = functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.info("loss %s", loss)


if __name__ == "__main__":
    main()

# DF102 REMEMBERED, device
"""Another file keeps the outputs: a list of that module, in pairs."""

import torch
from keeping import remember
from parts import batches, classifier
from torch.nn import functional


def train(model, optimizer, data):
    for inputs, targets in data:
        logits = model(inputs)
        optimizer.zero_grad()
        functional.cross_entropy(logits, targets).backward()
        optimizer.step()
        remember("logits", logits)


if __name__ == "__main__":
    model = classifier()
    train(model, torch.optim.AdamW(model.parameters()), batches(40))

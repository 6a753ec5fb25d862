# DF102 kept, device
"""A function made within another keeps the outputs, in a dictionary that only the two of them know."""

import torch
from parts import batches, classifier
from torch.nn import functional


def step_of(model, optimizer):
    kept = {}

    def step(number, inputs, targets):
        logits = model(inputs)
        loss = functional.cross_entropy(logits, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        kept[number] = logits  # <- holder
        return loss.item()

    return step


def main():
    model = classifier()
    step = step_of(model, torch.optim.AdamW(model.parameters()))
    for number, (inputs, targets) in enumerate(batches(40)):
        step(number, inputs, targets)


if __name__ == "__main__":
    main()

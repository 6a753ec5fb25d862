"""A writer gathers images of each step, and another method empties it at each tenth; losses go into a dict of lists."""

import torch
from parts import batches, classifier
from torch.nn import functional


class Writer:
    def __init__(self):
        self.waiting = []

    def add(self, name, value):
        self.waiting.append((name, value))
        if len(self.waiting) >= 10:
            self.flush()

    def flush(self):
        for _, value in self.waiting:
            value.cpu()
        self.waiting = []


def main():
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters())
    writer, history = Writer(), {"loss": [], "size": []}
    for inputs, targets in batches(40):
        outputs = model(inputs)
        loss = functional.cross_entropy(outputs, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        writer.add("outputs", outputs.detach())
        history["loss"].append(loss.detach())
        history["size"].append(len(inputs))


if __name__ == "__main__":
    main()

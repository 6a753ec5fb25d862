# DF113 *, device
"""Each task has a learner of its own, whose gradients keep their graph, which keeps the learner: a circle."""

import copy

import torch
from parts import batches, classifier
from torch.nn import functional


def main():
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters())
    for inputs, targets in batches(40):
        learner = copy.deepcopy(model)
        functional.cross_entropy(learner(inputs), targets).backward(create_graph=True)  # <- holder
        penalty = sum(parameter.grad.pow(2).sum() for parameter in learner.parameters())
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        print(penalty.item())


if __name__ == "__main__":
    main()

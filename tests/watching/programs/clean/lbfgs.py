"""An optimizer that keeps a history of its own, which fills in the first steps, and has the loss in a closure."""

import torch
from parts import batches, classifier
from torch.nn import functional


def main():
    model = classifier(layers=2)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4, history_size=12)
    for inputs, targets in batches(30):

        def closure(inputs=inputs, targets=targets):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(inputs), targets)
            loss.backward()
            return loss

        optimizer.step(closure)


if __name__ == "__main__":
    main()

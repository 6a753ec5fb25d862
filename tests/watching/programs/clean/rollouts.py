"""Reinforcement learning: rollouts are gathered without gradients, learned from a few times, and cleared."""

import torch
from parts import WIDTH, classifier
from torch.nn import functional


class Rollouts:
    def __init__(self):
        self.observed, self.chances = [], []

    def clear(self):
        self.observed.clear()
        self.chances.clear()


def main():
    model = classifier()
    optimizer = torch.optim.Adam(model.parameters())
    rollouts = Rollouts()
    for _ in range(10):
        rollouts.clear()
        for _ in range(8):
            observed = torch.randn(64, WIDTH, device="cuda")
            with torch.no_grad():
                rollouts.chances.append(functional.log_softmax(model(observed), dim=1)[:, 0])
            rollouts.observed.append(observed)
        observed, before = torch.cat(rollouts.observed), torch.cat(rollouts.chances)
        for part in torch.arange(len(observed), device="cuda").split(128):
            ratio = (functional.log_softmax(model(observed[part]), dim=1)[:, 0] - before[part]).exp()
            optimizer.zero_grad()
            ratio.mean().backward()
            optimizer.step()


if __name__ == "__main__":
    main()

# DF202 predictions, device
"""An evaluation without gradients gathers its outputs on the card, and looks at them when it has them all."""

import torch
from parts import batches, classifier
from torch.nn import functional


@torch.no_grad()
def evaluate(model):
    model.eval()
    predictions, answers = [], []
    for inputs, targets in batches(8):
        predictions.append(model(inputs))  # <- holder
        answers.append(targets.cpu())
    model.train()
    return (torch.cat(predictions).argmax(dim=1).cpu() == torch.cat(answers)).float().mean()


def main():
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        for inputs, targets in batches(2):
            optimizer.zero_grad()
            functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
        print(evaluate(model))


if __name__ == "__main__":
    main()

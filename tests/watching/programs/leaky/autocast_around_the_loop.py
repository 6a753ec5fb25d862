# DF112 *, device
"""One autocast region lasts over all steps: its copies of the weights are kept, and are those of the first step."""

import torch
from parts import batches, classifier
from torch.nn import functional


def main():
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters())
    with torch.autocast("cuda", dtype=torch.bfloat16):  # <- holder
        for inputs, targets in batches(40):
            loss = functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()

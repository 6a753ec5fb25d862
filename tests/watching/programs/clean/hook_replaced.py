"""A hook keeps what passed through a layer last, and an error that was caught is let go."""

import torch
from parts import batches, classifier
from torch.nn import functional


def main():
    model = classifier()
    features = {}
    model[3].register_forward_hook(lambda module, inputs, output: features.update(last=output.detach()))
    optimizer = torch.optim.AdamW(model.parameters())
    for inputs, targets in batches(40):
        too_large = False
        try:
            torch.empty(1 << 40, device="cuda")
        except torch.cuda.OutOfMemoryError:
            too_large = True
        loss = functional.cross_entropy(model(inputs), targets) + 0.01 * features["last"].pow(2).mean() * too_large
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()

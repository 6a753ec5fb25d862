# DF111 images, device
"""All images are moved to the card at once, and each step uses a few."""

import torch
from parts import CLASSES, WIDTH, classifier
from torch.nn import functional


def main():
    images = torch.randn(60_000, WIDTH)
    labels = torch.randint(CLASSES, (60_000,))
    images = images.to("cuda")  # <- holder
    labels = labels.to("cuda")
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters())
    for start in range(0, len(images), 256):
        logits = model(images[start : start + 256])
        loss = functional.cross_entropy(logits, labels[start : start + 256])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()

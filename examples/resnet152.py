"""torchvision's ResNet-152 on 224 x 224 images, float32, SGD with momentum.

dryfit run --gpu rtx-3060-12gb examples/resnet152.py --batch 16
"""

import argparse

import torch
import torchvision


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=100)
    arguments = parser.parse_args()

    model = torchvision.models.resnet152().to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    criterion = torch.nn.CrossEntropyLoss()

    for _ in range(arguments.steps):
        images = torch.randn(arguments.batch, 3, 224, 224).to("cuda")
        labels = torch.randint(1000, (arguments.batch,)).to("cuda")
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()

"""Train torchvision's ResNet-50 on one image in float32, with soft labels, whose shape a first forward pass gives.

python resnet50_step.py --optimizer momentum
"""

import argparse
from collections.abc import Callable, Iterator

import torch
import torchvision

OPTIMIZERS: dict[str, Callable[[Iterator[torch.nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=1e-3, momentum=0.9),
    "adam": torch.optim.Adam,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="momentum")
    parser.add_argument("--steps", type=int, default=5)
    arguments = parser.parse_args()

    model = torchvision.models.resnet50().to("cuda")
    image = torch.randn(1, 3, 224, 224, device="cuda")
    labels = torch.rand_like(model(image))
    optimizer = OPTIMIZERS[arguments.optimizer](model.parameters())
    criterion = torch.nn.CrossEntropyLoss()
    for _ in range(arguments.steps):
        scores = model(image)
        criterion(scores, labels).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


if __name__ == "__main__":
    main()

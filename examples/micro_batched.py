"""Trains with a batch that does not fit: it is cut when memory runs out, and keeps the gradient of the whole batch.

dryfit run --gpu sm=80,sms=108,memory=4GiB examples/micro_batched.py
dryfit fit --gpu sm=80,sms=108,memory=4GiB -o fit.json --vary size=1..65536 examples/micro_batched.py --keep {size}
dryfit run --gpu sm=80,sms=108,memory=4GiB examples/micro_batched.py --start fit.json

The first halves its batch until it fits. The second finds the size beforehand, and the third begins with that. Without
a card it runs on the host, where nothing is cut.
"""

import argparse

import torch
from torch import nn

from dryfit.train import micro_batched, peak_memory

WIDTH, CLASSES = 2048, 1000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int)
    parser.add_argument("--start", help="what `dryfit fit -o` has saved")
    parser.add_argument("--keep", type=int, help="take so many samples at a time, fitting or not, and twice as a batch")
    parser.add_argument("--steps", type=int, default=5)
    arguments = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    batch = arguments.batch or (65536 if device.type == "cuda" else 64)
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(8)]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, CLASSES)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())

    def loss_of(labels: torch.Tensor) -> torch.Tensor:
        inputs = torch.randn(len(labels), WIDTH, device=device)
        return nn.functional.cross_entropy(model(inputs), labels.to(device))

    if arguments.keep:
        batch = 2 * arguments.keep  # two pieces have the peak of many: the second has the first one's gradients
        train_on = micro_batched(loss_of, model, start=arguments.keep, halve=False)
    else:
        train_on = micro_batched(loss_of, model, start=arguments.start)
    with peak_memory() as peak:
        for _ in range(arguments.steps):
            train_on(torch.randint(CLASSES, (batch,)))
            optimizer.step()
            optimizer.zero_grad()
    print(f"batches of {batch}, {train_on.micro_batch or batch} samples at a time; {peak}")


if __name__ == "__main__":
    main()

"""Finds a batch that fits the hard way: catches the out-of-memory error and halves the batch.

dryfit run --gpu sm=80,sms=108,memory=4GiB examples/halve_on_oom.py
"""

import torch
from torch import nn


def main() -> None:
    model = nn.Sequential(*[nn.Sequential(nn.Linear(2048, 2048), nn.ReLU()) for _ in range(8)]).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters())
    batch, step = 131072, 0
    while step < 5:
        try:
            model(torch.randn(batch, 2048, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            step += 1
        except torch.OutOfMemoryError:
            optimizer.zero_grad()
            batch //= 2
            print(f"out of memory: trying batch {batch}")
            torch.cuda.empty_cache()
    print(f"batch {batch} fits")


if __name__ == "__main__":
    main()

"""Gradients of four micro-batches make a step; autocast and a scaler as they are meant."""

import torch
from parts import batches, classifier
from torch.nn import functional

PARTS = 4


def main():
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cuda")
    total = 0.0
    for number, (inputs, targets) in enumerate(batches(80), start=1):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = functional.cross_entropy(model(inputs), targets) / PARTS
        scaler.scale(loss).backward()
        total += loss.detach()
        if number % PARTS == 0:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
            print(total.item())
            total = 0.0


if __name__ == "__main__":
    main()

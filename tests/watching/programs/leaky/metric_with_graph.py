# DF103 psnr.total | self.total, host or device
"""A metric adds up what the model gave, and the graph of each step with it."""

import torch
from parts import WIDTH, batches
from torch import nn
from torch.nn import functional


class PSNR:
    def __init__(self):
        self.total = torch.zeros((), device="cuda")
        self.count = 0

    def update(self, outputs, targets):
        error = functional.mse_loss(outputs, targets)
        self.total = self.total - 10 * torch.log10(error)  # <- holder
        self.count += 1

    def compute(self):
        return self.total / self.count


def main():
    generator = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH)).cuda()
    optimizer = torch.optim.Adam(generator.parameters())
    psnr = PSNR()
    for images, _ in batches(40):
        restored = generator(images + 0.1)
        loss = functional.l1_loss(restored, images)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        psnr.update(restored, images)  # <- holder
    print(psnr.compute())


if __name__ == "__main__":
    main()

"""A U-Net with batch norms: main("plain") as it is, main("by hand") with its blocks checkpointed."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class DoubleConv(nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
        )  # fmt: skip


class UNet(nn.Module):
    def __init__(self, by_hand):
        super().__init__()
        self.by_hand = by_hand
        widths = (16, 32, 64)
        self.down = nn.ModuleList(DoubleConv(a, b) for a, b in zip((3, 16, 32), widths, strict=True))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(2 * width, width, 2, 2) for width in (32, 16))
        self.up = nn.ModuleList(DoubleConv(2 * width, width) for width in (32, 16))
        self.last = nn.Conv2d(16, 2, 1)

    def block(self, block, x):
        return checkpoint(block, x, use_reentrant=False) if self.by_hand else block(x)

    def forward(self, x):
        kept = []
        for place, block in enumerate(self.down):
            x = self.block(block, F.max_pool2d(x, 2) if place else x)
            kept.append(x)
        for grow, block, beside in zip(self.grow, self.up, kept[-2::-1], strict=True):
            x = self.block(block, torch.cat([beside, grow(x)], dim=1))
        return self.last(x)


def main(how="plain"):
    model = UNet(how == "by hand").cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(4):
        optimizer.zero_grad()
        images = torch.randn(4, 3, 128, 128, device="cuda")
        F.cross_entropy(model(images), torch.randint(2, (4, 128, 128), device="cuda")).backward()
        optimizer.step()

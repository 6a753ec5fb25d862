"""A U-Net with batch norms on images of 1024 x 1024 in float32 with Adam."""

from by_hand import arguments, train


def main():
    given = arguments(batch=4, width=64, size=1024)
    import torch
    from torch import nn
    from torch.nn import functional

    widths = [given.width * 2**level for level in range(5)]

    class DoubleConv(nn.Sequential):
        def __init__(self, inside, outside):
            super().__init__(
                nn.Conv2d(inside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(inplace=True),
                nn.Conv2d(outside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(inplace=True),
            )  # fmt: skip

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.ModuleList(DoubleConv(i, o) for i, o in zip((3, *widths), widths, strict=False))
            self.up = nn.ModuleList(
                nn.ConvTranspose2d(wide, narrow, 2, stride=2)
                for wide, narrow in zip(widths[:0:-1], widths[-2::-1], strict=True)
            )
            self.merge = nn.ModuleList(DoubleConv(2 * narrow, narrow) for narrow in widths[-2::-1])
            self.pool, self.out = nn.MaxPool2d(2), nn.Conv2d(widths[0], 1, 1)

        def forward(self, x):
            skips = []
            for level, block in enumerate(self.down):
                x = block(x if level == 0 else self.pool(x))
                skips.append(x)
            for up, merge, skip in zip(self.up, self.merge, skips[-2::-1], strict=True):
                x = merge(torch.cat([skip, up(x)], dim=1))
            return self.out(x)

    model = UNet().to(given.dtype).cuda()

    def loss_of(batch):
        images, masks = batch
        return functional.binary_cross_entropy_with_logits(model(images.to(given.dtype)), masks)

    def inputs(size):
        images = torch.randn(size, 3, given.size, given.size, device="cuda")
        return images, torch.rand(size, 1, given.size, given.size, device="cuda")

    train(given, model, loss_of, inputs, blocks=[*model.down, *model.merge], kind=torch.optim.Adam)

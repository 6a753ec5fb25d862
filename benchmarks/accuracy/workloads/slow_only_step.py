"""Train SlowOnly, a video recognizer on a ResNet-50 of three dimensions, as one rank of DistributedDataParallel.

    dryfit run --world 8 slow_only_step.py --clips 16 --frames 4

The last two stages look at three frames at a time. SGD, clipped gradients; they are set to zero in place, as before
PyTorch 2.0, and after the forward pass, as mmcv's hook does.
"""

import argparse

import torch
import torch.nn.functional as F
from one_rank import join_world, train_recognizer, wrapped
from torch import Tensor, nn

STAGES = ((64, 3, False), (128, 4, False), (256, 6, True), (512, 3, True))
CLASSES = 400


def normed(inputs: int, outputs: int, size: tuple[int, int, int], stride: int = 1) -> nn.Sequential:
    padding = tuple(each // 2 for each in size)
    convolution = nn.Conv3d(inputs, outputs, size, stride=(1, stride, stride), padding=padding, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm3d(outputs))


class Block(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int, *, over_time: bool) -> None:
        super().__init__()
        self.conv1 = normed(inputs, width, (3, 1, 1) if over_time else (1, 1, 1))
        self.conv2 = normed(width, width, (1, 3, 3), stride)
        self.conv3 = normed(width, 4 * width, (1, 1, 1))
        changes = stride != 1 or inputs != 4 * width
        self.downsample = normed(inputs, 4 * width, (1, 1, 1), stride) if changes else None
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv3(self.relu(self.conv2(self.relu(self.conv1(x)))))
        identity = x if self.downsample is None else self.downsample(x)
        out = out + identity
        return self.relu(out)


class SlowOnly(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(*normed(3, 64, (1, 7, 7), 2), nn.ReLU(inplace=True))
        self.pool = nn.MaxPool3d((1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1))
        blocks, inputs = [], 64
        for stage, (width, count, over_time) in enumerate(STAGES):
            for place in range(count):
                stride = 2 if stage and not place else 1
                blocks.append(Block(inputs, width, stride, over_time=over_time))
                inputs = 4 * width
        self.blocks = nn.Sequential(*blocks)
        self.average = nn.AdaptiveAvgPool3d((1, 1, 1))
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(inputs, CLASSES)

    def forward(self, clips: Tensor, labels: Tensor) -> Tensor:
        x = self.blocks(self.pool(self.stem(clips)))
        x = self.dropout(self.average(x))
        return F.cross_entropy(self.head(x.view(x.shape[0], -1)), labels)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--clips", type=int, default=16)
    parser.add_argument("--frames", type=int, default=4)
    parser.add_argument("--steps", type=int, default=4)
    arguments = parser.parse_args()

    join_world()
    model = wrapped(SlowOnly().to("cuda"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.6, momentum=0.9, weight_decay=1e-4, foreach=False)
    model.train()

    def forward() -> Tensor:
        clips = torch.rand(arguments.clips, 3, arguments.frames, 224, 224).to("cuda")
        labels = torch.randint(CLASSES, (arguments.clips,)).to("cuda")
        return model(clips, labels)

    train_recognizer(model, optimizer, forward, arguments.steps)


if __name__ == "__main__":
    main()

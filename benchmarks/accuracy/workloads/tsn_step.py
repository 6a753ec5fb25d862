"""Train TSN or TSM, video recognizers on a ResNet, as one rank of DistributedDataParallel: SGD, clipped gradients.

    python tsn_step.py --depth 50 --videos 32 --segments 3 --classes 400

Gradients are set to zero in place, as before PyTorch 2.0, and after the forward pass, as mmcv's hook does.
"""

import argparse

import torch
import torch.nn.functional as F
from one_rank import join_world, train_recognizer, wrapped
from torch import Tensor, nn
from torchvision.models.resnet import Bottleneck, ResNet

BLOCKS = {50: [3, 4, 6, 3], 101: [3, 4, 23, 3]}


class Block(Bottleneck):
    """torchvision's, but what is added is a new tensor."""

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out)) + identity
        return self.relu(out)


class Shifted(nn.Module):
    """A convolution before which an eighth of the channels moves one segment back, and an eighth one on."""

    def __init__(self, convolution: nn.Module, segments: int) -> None:
        super().__init__()
        self.convolution = convolution
        self.segments = segments

    def forward(self, x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        x = x.view(-1, self.segments, c, h * w)
        eighth = c // 8
        left, middle, rest = x.split((eighth, eighth, c - 2 * eighth), dim=2)
        nothing = (left - left)[:, :1]
        left = torch.cat((left[:, 1:], nothing), 1)
        nothing = (middle - middle)[:, :1]
        middle = torch.cat((nothing, middle[:, :-1]), 1)
        return self.convolution(torch.cat((left, middle, rest), 2).view(n, c, h, w))


class Recognizer(nn.Module):
    def __init__(self, arguments: argparse.Namespace) -> None:
        super().__init__()
        self.segments = arguments.segments
        self.multi_label, self.shift = arguments.multi_label, arguments.shift
        self.backbone = ResNet(Block, BLOCKS[arguments.depth], num_classes=arguments.classes)
        if arguments.channels != 3:
            self.backbone.conv1 = nn.Conv2d(arguments.channels, 64, 7, stride=2, padding=3, bias=False)
        self.head, self.backbone.fc = self.backbone.fc, nn.Identity()
        self.dropout = nn.Dropout(arguments.dropout)
        if self.shift:
            every = 2 if arguments.depth == 101 else 1
            for layer in (self.backbone.layer1, self.backbone.layer2, self.backbone.layer3, self.backbone.layer4):
                for block in list(layer)[::every]:
                    block.conv1 = Shifted(block.conv1, self.segments)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        images = images.reshape(-1, *images.shape[2:])
        net = self.backbone
        x = net.maxpool(net.relu(net.bn1(net.conv1(images))))
        x = net.layer4(net.layer3(net.layer2(net.layer1(x))))
        x = net.avgpool(x)
        if self.shift:  # TSM averages scores, TSN features
            scores = self.head(self.dropout(x.flatten(1)))
            scores = scores.view(-1, self.segments, scores.shape[-1]).mean(1)
        else:
            x = x.reshape(-1, self.segments, *x.shape[1:]).mean(1, keepdim=True).squeeze(1)
            scores = self.head(self.dropout(x).view(x.shape[0], -1))
        if self.multi_label:
            return F.binary_cross_entropy_with_logits(scores, labels)
        return F.cross_entropy(scores, labels)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--depth", type=int, choices=list(BLOCKS), default=50)
    parser.add_argument("--videos", type=int, default=32)
    parser.add_argument("--segments", type=int, default=3)
    parser.add_argument("--classes", type=int, default=400)
    parser.add_argument("--channels", type=int, default=3, help="of a segment: 10 are five frames of optical flow")
    parser.add_argument("--dropout", type=float, default=0.4)
    parser.add_argument("--shift", action="store_true", help="TSM")
    parser.add_argument("--norm-eval", action="store_true", help="keep BatchNorm in evaluation mode")
    parser.add_argument("--multi-label", action="store_true")
    parser.add_argument("--steps", type=int, default=4)
    arguments = parser.parse_args()

    join_world()
    recognizer = Recognizer(arguments).to("cuda")
    model = wrapped(recognizer)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, foreach=False)
    model.train()
    if arguments.norm_eval:
        for part in recognizer.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.eval()

    def forward() -> Tensor:
        images = torch.rand(arguments.videos, arguments.segments, arguments.channels, 224, 224).to("cuda")
        if arguments.multi_label:
            labels = torch.zeros(arguments.videos, arguments.classes).to("cuda")
        else:
            labels = torch.randint(arguments.classes, (arguments.videos,)).to("cuda")
        return model(images, labels)

    train_recognizer(model, optimizer, forward, arguments.steps)


if __name__ == "__main__":
    main()

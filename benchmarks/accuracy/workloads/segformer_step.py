"""Train SegFormer on crops of fixed size, as one rank of DistributedDataParallel, as mmsegmentation did in 2021: AdamW.

    python segformer_step.py --size b1 --batch 1 --crop 1024 --classes 19

Attention is written out, as PyTorch 1.9's MultiheadAttention did it. Gradients are set to zero in place, after the
forward pass. The measured heads had SyncBatchNorm (`--sync-norm`), which today's PyTorch cannot run on a V100: it asks
`nonzero` which ranks had a batch, and CUDA 13 has no such kernel for that card.
"""

import argparse

import torch
import torch.nn.functional as F
from old_torch import log_softmax_that_keeps_its_input, softmax_that_keeps_its_input
from one_rank import join_world, wrapped
from torch import Tensor, nn

WIDTHS = {"b0": 32}
LAYERS = {
    "b0": (2, 2, 2, 2),
    "b1": (2, 2, 2, 2),
    "b2": (3, 4, 6, 3),
    "b4": (3, 8, 27, 3),
    "b5": (3, 6, 40, 3),
}
HEADS, REDUCTIONS = (1, 2, 5, 8), (8, 4, 2, 1)


def as_image(x: Tensor, shape: tuple[int, int]) -> Tensor:
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], *shape)


def as_sequence(x: Tensor) -> Tensor:
    return x.flatten(2).transpose(1, 2).contiguous()


class DropPath(nn.Module):
    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        if not self.probability:
            return x
        keep = 1 - self.probability
        chosen = (keep + torch.rand(x.shape[0], *[1] * (x.dim() - 1), device=x.device)).floor()
        return x.div(keep) * chosen


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, reduction: int) -> None:
        super().__init__()
        self.heads, self.reduction = heads, reduction
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        if reduction > 1:
            self.reduce = nn.Conv2d(width, width, reduction, stride=reduction)
            self.norm = nn.LayerNorm(width, eps=1e-6)

    def forward(self, x: Tensor, shape: tuple[int, int]) -> Tensor:
        kept = self.norm(as_sequence(self.reduce(as_image(x, shape)))) if self.reduction > 1 else x
        x, kept = x.transpose(0, 1), kept.transpose(0, 1)
        length, batch, width = x.shape
        features = width // self.heads
        q, k, v = self.q(x), self.k(kept), self.v(kept)
        q, k, v = (y.contiguous().view(y.shape[0], batch * self.heads, features).transpose(0, 1) for y in (q, k, v))
        q = q / features**0.5
        mixed = torch.bmm(F.softmax(torch.bmm(q, k.transpose(-2, -1)), dim=-1), v)
        mixed = mixed.transpose(0, 1).contiguous().view(length, batch, width)
        return self.out(mixed).transpose(0, 1)


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, reduction: int, drop: float) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.attention = Attention(width, heads, reduction)
        self.drop = DropPath(drop)
        hidden = 4 * width
        self.feed_forward = nn.Sequential(
            nn.Conv2d(width, hidden, 1),
            nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden),
            nn.GELU(),
            nn.Conv2d(hidden, width, 1),
        )

    def forward(self, x: Tensor, shape: tuple[int, int]) -> Tensor:
        x = x + self.drop(self.attention(self.norm_1(x), shape))
        return x + self.drop(as_sequence(self.feed_forward(as_image(self.norm_2(x), shape))))


class Stage(nn.Module):
    def __init__(self, before: int, width: int, stage: int, drops: list[float]) -> None:
        super().__init__()
        size, stride = (7, 4) if stage == 0 else (3, 2)
        self.patches = nn.Conv2d(before, width, size, stride=stride, padding=size // 2)
        self.patch_norm = nn.LayerNorm(width, eps=1e-6)
        self.layers = nn.ModuleList(Layer(width, HEADS[stage], REDUCTIONS[stage], drop) for drop in drops)
        self.norm = nn.LayerNorm(width, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x)
        shape = (x.shape[2], x.shape[3])
        x = self.patch_norm(x.flatten(2).transpose(1, 2))
        for layer in self.layers:
            x = layer(x, shape)
        return as_image(self.norm(x), shape)


def convolution(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


class SegFormer(nn.Module):
    def __init__(self, size: str, classes: int, keeps_input: bool) -> None:
        super().__init__()
        self.keeps_input = keeps_input
        width = WIDTHS.get(size, 64)
        widths = [width * heads for heads in HEADS]
        drops = torch.linspace(0, 0.1, sum(LAYERS[size])).tolist()
        stages, before, done = [], 3, 0
        for stage, count in enumerate(LAYERS[size]):
            stages.append(Stage(before, widths[stage], stage, drops[done : done + count]))
            before, done = widths[stage], done + count
        self.stages = nn.ModuleList(stages)
        self.convolutions = nn.ModuleList(convolution(each, 256) for each in widths)
        self.fusion = convolution(4 * 256, 256)
        self.dropout = nn.Dropout2d(0.1)
        self.classify = nn.Conv2d(256, classes, 1)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        size = features[0].shape[2:]
        outs = [
            F.interpolate(convolve(feature), size, mode="bilinear", align_corners=False)
            for convolve, feature in zip(self.convolutions, features, strict=True)
        ]
        logits = self.classify(self.dropout(self.fusion(torch.cat(outs, dim=1))))
        logits = F.interpolate(logits, labels.shape[1:], mode="bilinear", align_corners=False)
        if self.keeps_input:
            losses = F.nll_loss(log_softmax_that_keeps_its_input(logits, 1), labels, reduction="none")
        else:
            losses = F.cross_entropy(logits, labels, reduction="none", ignore_index=255)
        _, best = logits.topk(1, dim=1)
        (best.transpose(0, 1) == labels.unsqueeze(0)).float().sum()
        return losses.mean()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=LAYERS, default="b1")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--crop", type=int, default=1024)
    parser.add_argument("--classes", type=int, default=19)
    parser.add_argument("--sync-norm", action="store_true", help="statistics of all ranks' batches in the head")
    parser.add_argument("--softmax-keeps-input", action="store_true", help="as it did before PyTorch 1.11")
    parser.add_argument("--steps", type=int, default=3)
    arguments = parser.parse_args()

    if arguments.softmax_keeps_input:
        F.softmax = softmax_that_keeps_its_input
    join_world()
    net = SegFormer(arguments.size, arguments.classes, arguments.softmax_keeps_input).to("cuda")
    if arguments.sync_norm:
        net = nn.SyncBatchNorm.convert_sync_batchnorm(net)
    model = wrapped(net)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-5, foreach=False)
    side = arguments.crop

    def forward() -> Tensor:
        images = torch.rand(arguments.batch, 3, side, side).to("cuda")
        labels = torch.randint(arguments.classes, (arguments.batch, side, side)).to("cuda")
        return model(images, labels)

    for _ in range(arguments.steps):
        loss = forward()
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()

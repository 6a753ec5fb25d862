"""A 3D U-Net on a large crop under FSDP1. `dryfit run --world 2 examples/distributed/segmentation.py [wrap] [ddp]`.

There is little to shard, and activations are what it takes. "wrap" makes a unit of every module with more than ten
parameters; FSDP's mixed precision then leaves out batch norms, and casts what goes into and out of them. "ddp" runs it
under DistributedDataParallel and autocast instead.
"""

import functools
import itertools
import os
import sys

import torch
from torch import distributed, nn
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy
from torch.nn.parallel import DistributedDataParallel

WIDTHS, CLASSES, CROP, BATCH = (32, 64, 128, 256), 3, 128, 2


def convolutions(given: int, width: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for channels in (given, width):
        layers += [nn.Conv3d(channels, width, 3, padding=1), nn.BatchNorm3d(width), nn.LeakyReLU(inplace=True)]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        steps = list(itertools.pairwise(WIDTHS))
        self.down = nn.ModuleList(
            convolutions(given, width) for given, width in zip((1, *WIDTHS), WIDTHS, strict=False)
        )
        self.rise = nn.ModuleList(nn.ConvTranspose3d(deep, width, 2, stride=2) for width, deep in steps)
        self.up = nn.ModuleList(convolutions(2 * width, width) for width in WIDTHS[:-1])
        self.head = nn.Conv3d(WIDTHS[0], CLASSES, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        kept = [self.down[0](image)]
        for down in list(self.down)[1:]:
            kept.append(down(nn.functional.max_pool3d(kept[-1], 2)))
        hidden = kept.pop()
        for rise, up in zip(reversed(self.rise), reversed(self.up), strict=True):
            hidden = up(torch.cat([rise(hidden), kept.pop()], dim=1))
        return self.head(hidden)


torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
distributed.init_process_group("nccl")
if "ddp" in sys.argv:
    model = DistributedDataParallel(UNet().cuda(), gradient_as_bucket_view=True)
else:
    model = FullyShardedDataParallel(
        UNet(),
        device_id=torch.cuda.current_device(),
        mixed_precision=MixedPrecision(torch.float16, torch.float16, torch.float16),
        auto_wrap_policy=functools.partial(
            size_based_auto_wrap_policy, min_num_params=10, force_leaf_modules=set(), exclude_wrap_modules=set()
        )
        if "wrap" in sys.argv
        else None,
    )
optimizer = torch.optim.Adam(model.parameters())
for _ in range(3):
    image = torch.randn(BATCH, 1, CROP, CROP, CROP, device="cuda")
    classes = torch.randint(CLASSES, (BATCH, CROP, CROP, CROP), device="cuda")
    with torch.autocast("cuda", torch.float16, enabled="ddp" in sys.argv):
        loss = nn.functional.cross_entropy(model(image), classes)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
distributed.destroy_process_group()

"""Every kind of convolution, forward and backward: what each takes beyond its own tensors, as JSON.

usage: convolutions.py [DTYPE] [benchmark]
"""

from __future__ import annotations

import json
import sys

import torch
from torch import nn

dtype = getattr(torch, sys.argv[1] if len(sys.argv) > 1 else "float32")
torch.backends.cudnn.benchmark = "benchmark" in sys.argv
KINDS = {
    "1d": (nn.Conv1d(32, 64, 5, padding=2), (8, 32, 1000)),
    "2d": (nn.Conv2d(32, 64, 3, padding=1), (8, 32, 56, 56)),
    "2d channels last": (nn.Conv2d(32, 64, 3, padding=1), (8, 32, 56, 56)),
    "3d": (nn.Conv3d(16, 32, 3, padding=1), (2, 16, 16, 32, 32)),
    "transposed 1d": (nn.ConvTranspose1d(64, 32, 4, 2, 1), (8, 64, 280)),
    "transposed 2d": (nn.ConvTranspose2d(64, 32, 4, 2, 1), (8, 64, 28, 28)),
    "transposed 3d": (nn.ConvTranspose3d(16, 8, 4, 2, 1), (2, 16, 8, 16, 16)),
    "grouped": (nn.Conv2d(64, 64, 3, padding=1, groups=4), (8, 64, 56, 56)),
    "depthwise": (nn.Conv2d(64, 64, 5, padding=2, groups=64), (8, 64, 56, 56)),
    "dilated": (nn.Conv2d(32, 64, 3, padding=2, dilation=2), (8, 32, 56, 56)),
    "strided": (nn.Conv2d(3, 64, 7, stride=2, padding=3), (8, 3, 112, 112)),
    "1x1": (nn.Conv2d(64, 128, 1), (8, 64, 56, 56)),
}


def peak_bytes(convolution: nn.Module, shape: tuple[int, ...], layout: torch.memory_format) -> int:
    convolution.to("cuda", dtype, memory_format=layout)
    x = torch.empty(shape, device="cuda", dtype=dtype).to(memory_format=layout).requires_grad_()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    convolution(x).sum().backward()
    return torch.cuda.max_memory_allocated() - before


print(
    json.dumps(
        {
            name: peak_bytes(
                convolution,
                shape,
                torch.channels_last if name.endswith("last") else torch.preserve_format,
            )
            for name, (convolution, shape) in KINDS.items()
        }
    )
)

"""A training step of a timm model as timm's benchmark.py times it, under fp16 autocast.

    timm_benchmark.py resnet50 256 224 --channels-last

SGD with Nesterov's momentum, random images, cross entropy, no gradient scaler, and backward inside of autocast. cuDNN's
search for the fastest plan is on. The measurements are of PyTorch 1.12 and timm of July 2022, so gradients stay and are
set to zero, as was the default before PyTorch 2.0, and attention is written out, as timm did then. One batch runs; on
the card the same process had tried the larger ones of the ladder before.
"""

from __future__ import annotations

import argparse

import timm
import torch
from timm.layers import set_fused_attn
from timm.optim import create_optimizer_v2
from torch import nn

STEPS = 4


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("batch", type=int)
    parser.add_argument("size", type=int)
    parser.add_argument("--channels-last", action="store_true")
    asked = parser.parse_args()

    torch.backends.cudnn.benchmark = True
    layout = torch.channels_last if asked.channels_last else torch.contiguous_format
    set_fused_attn(False)
    model = timm.create_model(asked.model, drop_rate=0.0)
    model.to(device="cuda", memory_format=layout)
    model.train()
    optimizer = create_optimizer_v2(model, opt="sgd", lr=1e-4)
    loss_of = nn.CrossEntropyLoss()
    images = torch.randn((asked.batch, 3, asked.size, asked.size), device="cuda").contiguous(memory_format=layout)

    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=False)
        with torch.autocast("cuda"):
            output = model(images)
            if isinstance(output, tuple):
                output = output[0]
            labels = torch.empty(output.shape[0], device="cuda", dtype=torch.long).random_(model.num_classes)
            loss_of(output, labels).backward()
        optimizer.step()
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()

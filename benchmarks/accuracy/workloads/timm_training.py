"""Train a timm model as timm's train.py does with no options but model and batch size.

    timm_training.py resnet50 32

fp32, SGD with Nesterov's momentum and a weight decay of 2e-5, smoothed labels, cuDNN's search for the fastest plan, and
timm's loader, which brings the next batch on a stream of its own. Images are as large as the model expects. The data
set is five batches of zeros, read without worker processes, and there is no validation: the runs that this stands for
were cut short in the first epoch.
"""

from __future__ import annotations

import argparse

import timm
import torch
from timm.data import resolve_data_config
from timm.data.loader import PrefetchLoader
from timm.loss import LabelSmoothingCrossEntropy
from timm.optim import create_optimizer_v2

STEPS = 5


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("batch", type=int)
    asked = parser.parse_args()

    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    device = torch.device("cuda", 0)
    model = timm.create_model(asked.model).to(device)
    data = resolve_data_config({}, model=model)
    optimizer = create_optimizer_v2(model, opt="sgd", lr=0.05, momentum=0.9, weight_decay=2e-5)
    images = torch.zeros((asked.batch, *data["input_size"]), dtype=torch.uint8)
    labels = torch.zeros(asked.batch, dtype=torch.long)
    loader = PrefetchLoader([(images, labels)] * STEPS, mean=data["mean"], std=data["std"], device=device)
    loss_of = LabelSmoothingCrossEntropy(smoothing=0.1).to(device)

    model.train()
    optimizer.zero_grad()
    for batch, target in loader:
        loss = loss_of(model(batch), target)
        loss.backward()
        optimizer.step()
        loss.item()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()

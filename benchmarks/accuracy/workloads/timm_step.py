"""Train a model of timm on random images in float32: SGD with momentum 0.9, cuDNN's search for the fastest plan on.

python timm_step.py --model vit_base_patch16_224 --batch 32
"""

import argparse

import timm
import torch


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--steps", type=int, default=4)
    arguments = parser.parse_args()

    torch.backends.cudnn.benchmark = True
    model = timm.create_model(arguments.model).to("cuda")
    _, height, width = model.default_cfg["input_size"]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    criterion = torch.nn.CrossEntropyLoss()
    for _ in range(arguments.steps):
        images = torch.randn(arguments.batch, 3, height, width).to("cuda")
        labels = torch.randint(1000, (arguments.batch,)).to("cuda")
        loss = criterion(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()

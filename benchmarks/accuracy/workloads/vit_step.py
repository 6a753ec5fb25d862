"""Fine-tune torchvision's ViT-L/16 on 224 x 224 images with ten classes: one epoch of a plain loop, cut short.

    python vit_step.py --batch 64 --precision amp-fp16

The loop keeps the logits and the loss until the next ones take their names, as loops do that have no function for a
step. `--precision bf16` casts the model and its inputs, and the logits back, as Lightning's "bf16-true" does.
"""

import argparse
from contextlib import nullcontext

import torch
import torch.nn.functional as F
import torchvision
from old_torch import attention_that_copies


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--precision", choices=["fp32", "amp-fp16", "bf16"], default="fp32")
    parser.add_argument("--optimizer", choices=["adam", "sgd"], default="adam")
    parser.add_argument("--accumulate", type=int, default=1, help="batches for one step of the optimizer")
    parser.add_argument("--attention-copies", action="store_true", help="as it did before PyTorch 2.2")
    parser.add_argument("--batches", type=int, default=10)
    arguments = parser.parse_args()

    if arguments.attention_copies:
        F.scaled_dot_product_attention = attention_that_copies
    model = torchvision.models.vit_l_16()
    model.heads.head = torch.nn.Linear(1024, 10)
    if arguments.precision == "bf16":
        model.to(torch.bfloat16)
    model.to("cuda")
    if arguments.optimizer == "adam":
        optimizer: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), lr=5e-5)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cuda", enabled=arguments.precision == "amp-fp16")
    if arguments.precision != "fp32":
        torch.set_float32_matmul_precision("high")

    def forward(images: torch.Tensor) -> torch.Tensor:
        if arguments.precision == "bf16":
            images = images.to(torch.bfloat16)
        autocast = torch.autocast("cuda", torch.float16) if arguments.precision == "amp-fp16" else nullcontext()
        with autocast:
            logits = model(images)
        return logits.float()

    for batch in range(arguments.batches):
        model.train()
        images = torch.rand(arguments.batch, 3, 224, 224)
        labels = torch.randint(10, (arguments.batch,))
        images = images.to("cuda")
        labels = labels.to("cuda")
        logits = forward(images)
        loss = F.cross_entropy(logits, labels)
        if arguments.accumulate == 1:
            optimizer.zero_grad()
        else:
            loss = loss / arguments.accumulate
        scaler.scale(loss).backward()
        if batch % arguments.accumulate == 0:
            scaler.step(optimizer)
            scaler.update()
            if arguments.accumulate > 1:
                optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            torch.argmax(logits, 1)

    with torch.no_grad():
        images = torch.rand(arguments.batch, 3, 224, 224).to("cuda")
        torch.argmax(forward(images), 1)


if __name__ == "__main__":
    main()

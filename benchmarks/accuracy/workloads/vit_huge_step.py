"""Fine-tune timm's ViT-H/14 with bfloat16 autocast, compiled, and bitsandbytes' AdamW with states of 8 bits.

python vit_huge_step.py --batch 8
"""

import argparse

import bitsandbytes
import timm
import torch
import torch.nn.functional as F


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--eager", action="store_true", help="do not compile")
    parser.add_argument("--steps", type=int, default=3)
    arguments = parser.parse_args()

    model = timm.create_model("vit_huge_patch14_224", num_classes=45).to("cuda")
    if not arguments.eager:
        model.compile(fullgraph=True)
    optimizer = bitsandbytes.optim.AdamW8bit(model.parameters(), lr=1e-4, weight_decay=0)
    model.train()
    for _ in range(arguments.steps):
        images = torch.randn(arguments.batch, 3, 224, 224).to("cuda")
        labels = torch.randint(45, (arguments.batch,)).to("cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()

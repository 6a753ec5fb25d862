"""`bf16_images` in bfloat16, written by hand."""

import bf16_images
import torch
from bf16_images import train


class Net(bf16_images.Net):
    def forward(self, images, weights):
        images, weights = images.to(torch.bfloat16), {"of": weights["of"].to(torch.bfloat16)}
        return super().forward(images, weights)


def main(place="host"):
    if place == "card":
        with torch.device("cuda"):
            model = Net().to(torch.bfloat16)
    else:
        model = Net().to("cuda", torch.bfloat16)
    train(model)

"""Causal attention with one head, written out, in float32: a loop of forward passes, or of forward and backward.

python attention_step.py --length 1024 --width 16 --backward
"""

import argparse
import math

import torch
from torch import Tensor, nn


def softmax(x: Tensor) -> Tensor:
    shifted = x - torch.max(x, dim=-1, keepdim=True)[0]
    powers = torch.exp(shifted)
    return powers / torch.sum(powers, dim=-1, keepdim=True)


class Attention(nn.Module):
    def __init__(self, width: int, length: int) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.mask = torch.triu(torch.ones(length, length, device="cuda", dtype=torch.bool))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.q(x), self.k(x), self.v(x)
        scores = torch.einsum("...qd,...kd->...qk", q, k) / math.sqrt(k.shape[-1])
        scores = torch.where(self.mask, scores, float("-inf"))
        weights = softmax(scores)
        return self.out(torch.einsum("...qk,...kd->...qd", weights, v))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--backward", action="store_true")
    arguments = parser.parse_args()

    attention = Attention(arguments.width, arguments.length).to("cuda")
    x = torch.randn(8, arguments.length, arguments.width, device="cuda")

    def forward() -> None:
        attention(x)

    def forward_and_backward() -> None:
        y = attention(x)
        y.sum().backward()

    for _ in range(5):
        if arguments.backward:
            forward_and_backward()
        else:
            forward()
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()

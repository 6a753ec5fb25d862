# DF106 ctx.inputs | total_loss, device; also DF101
"""A Function of the program's own keeps its input on ctx, where no backward pass frees it; a sum keeps the graph."""

import torch
from parts import WIDTH, batches
from torch import nn


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs):
        ctx.inputs = inputs  # <- holder
        return inputs * inputs

    @staticmethod
    def backward(ctx, gradient):
        return 2 * ctx.inputs * gradient


def main():
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    total_loss = 0
    for inputs, _ in batches(40):
        loss = Square.apply(model(inputs)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total_loss += loss  # the graph of each step
    print(total_loss)


if __name__ == "__main__":
    main()

# DF104 self.hidden, device
"""A model keeps its hidden state from batch to batch; only a head is trained, so no backward pass reaches it."""

import torch
from parts import WIDTH, sequences
from torch import nn


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(WIDTH, WIDTH)
        self.hidden = None

    def forward(self, sequence):
        for inputs in sequence:
            self.hidden = self.cell(inputs, self.hidden)  # <- holder
        return self.hidden


def main():
    reader, head = Reader().cuda(), nn.Linear(WIDTH, WIDTH).cuda()
    optimizer = torch.optim.SGD(head.parameters(), lr=0.01)
    for sequence in sequences(24, length=4):
        features = reader(sequence).detach()
        optimizer.zero_grad()
        head(features).pow(2).mean().backward()
        optimizer.step()


if __name__ == "__main__":
    main()

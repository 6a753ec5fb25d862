"""The hidden state goes into the next batch without its graph."""

import torch
from parts import WIDTH, sequences
from torch import nn


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, WIDTH)

    def forward(self, sequence, hidden):
        outputs = []
        for inputs in sequence:
            hidden = self.cell(inputs, hidden)
            outputs.append(self.head(hidden))
        return torch.stack(outputs), hidden


def main():
    model = Reader().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    hidden = torch.zeros(32, WIDTH, device="cuda")
    for sequence in sequences(24, length=4):
        outputs, hidden = model(sequence, hidden.detach())
        optimizer.zero_grad()
        outputs.pow(2).mean().backward()
        optimizer.step()


if __name__ == "__main__":
    main()

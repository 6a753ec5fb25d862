# DF104 state, device; also DF201
"""An evaluation hands the state of an LSTM from batch to batch with its graph, which grows by a batch each time."""

import torch
from parts import WIDTH, sequences
from torch import nn


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, WIDTH)

    def forward(self, sequence, state):
        outputs, state = self.lstm(sequence, state)
        return self.head(outputs).pow(2).mean(), state


def evaluate(model):
    state, total = None, 0.0
    for sequence in sequences(12):
        loss, state = model(sequence, state)  # <- holder
        total += loss.item()
    return total


def main():
    model = Reader().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(4):
        for sequence in sequences(2):
            loss, _ = model(sequence, None)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(evaluate(model))


if __name__ == "__main__":
    main()

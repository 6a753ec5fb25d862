"""Train a recurrent network with a linear layer on top, on random vectors: a plain loop.

    python rnn_step.py --cell gru --input 123 --hidden 320 --layers 4 --length 250 --batch 100

The loop keeps its output and loss until the next ones take their names, as loops do that have no function for a step.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

CELLS = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cell", choices=sorted(CELLS), default="lstm")
    parser.add_argument("--input", type=int, default=123)
    parser.add_argument("--hidden", type=int, default=320)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--length", type=int, default=250)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--bidirectional", action="store_true")
    parser.add_argument("--dtype", choices=["float32", "float16", "bfloat16"], default="float32")
    parser.add_argument("--optimizer", choices=["adam", "sgd"], default="adam")
    parser.add_argument("--steps", type=int, default=4)
    arguments = parser.parse_args()

    dtype = getattr(torch, arguments.dtype)
    network = CELLS[arguments.cell](
        arguments.input,
        arguments.hidden,
        arguments.layers,
        dropout=arguments.dropout,
        bidirectional=arguments.bidirectional,
    ).to("cuda", dtype)
    on_top = nn.Linear(arguments.hidden * (1 + arguments.bidirectional), arguments.classes).to("cuda", dtype)
    parameters = [*network.parameters(), *on_top.parameters()]
    if arguments.optimizer == "adam":
        optimizer: torch.optim.Optimizer = torch.optim.Adam(parameters)
    else:
        optimizer = torch.optim.SGD(parameters, lr=0.01)
    for _ in range(arguments.steps):
        vectors = torch.randn(arguments.length, arguments.batch, arguments.input).to("cuda", dtype)
        labels = torch.randint(arguments.classes, (arguments.batch,)).to("cuda")
        output, _state = network(vectors)
        loss = F.cross_entropy(on_top(output[-1]), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()

"""Train an MLP on random features with Adam, after one forward pass of two samples.

python mlp_step.py --inputs 3958 --outputs 778 --layers 10 --batch 688 --activation leaky_relu --batch-norm
"""

import argparse

import torch
from torch import nn

ACTIVATIONS = {
    "prelu": nn.PReLU,
    "swish": nn.SiLU,
    "identity": nn.Identity,
    "elu": nn.ELU,
    "leaky_relu": nn.LeakyReLU,
}


def layers_of(arguments: argparse.Namespace) -> nn.Sequential:
    layers: list[nn.Module] = []
    width = arguments.inputs

    def add(to: int) -> int:
        layers.append(nn.Linear(width, to))
        if arguments.batch_norm:
            layers.append(nn.BatchNorm1d(to))
        layers.append(ACTIVATIONS[arguments.activation]())
        if arguments.dropout:
            layers.append(nn.Dropout(0.5))
        return to

    halvings = arguments.layers + (arguments.shape == "bottleneck")
    for _ in range(halvings):
        width = add(width if arguments.shape == "uniform" else max(width // 2, arguments.outputs))
    layers += [nn.Linear(width, arguments.outputs), nn.Softmax(dim=1)]
    return nn.Sequential(*layers)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--inputs", type=int, required=True)
    parser.add_argument("--outputs", type=int, required=True)
    parser.add_argument("--layers", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--shape", choices=["uniform", "pyramid", "bottleneck"], default="uniform")
    parser.add_argument("--activation", choices=ACTIVATIONS, required=True)
    parser.add_argument("--batch-norm", action="store_true")
    parser.add_argument("--dropout", action="store_true")
    parser.add_argument("--samples", type=int, default=4096)
    arguments = parser.parse_args()

    model = layers_of(arguments).to("cuda")
    model(torch.rand(2, arguments.inputs, device="cuda"))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters())
    features = torch.randn(arguments.samples, arguments.inputs)
    classes = torch.randint(arguments.outputs, (arguments.samples,))
    for _ in range(2):
        for inputs, labels in zip(features.split(arguments.batch), classes.split(arguments.batch), strict=True):
            inputs, labels = inputs.to("cuda"), labels.to("cuda")
            optimizer.zero_grad()
            outputs = model(inputs)
            loss = criterion(outputs, labels)
            loss.backward()
            optimizer.step()
            loss.item()


if __name__ == "__main__":
    main()

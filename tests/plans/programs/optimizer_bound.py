"""Eight large layers and few samples: what takes most is the optimizer step."""

from by_hand import arguments, train


def main():
    given = arguments(batch=32, layers=8, width=8192)
    import torch
    from torch import nn

    model = nn.Sequential(*(nn.Linear(given.width, given.width) for _ in range(given.layers))).to(given.dtype).cuda()

    def loss_of(batch):
        return model(batch.to(given.dtype)).square().mean()

    def inputs(size):
        return torch.randn(size, given.width, device="cuda")

    train(given, model, loss_of, inputs)

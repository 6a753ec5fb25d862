"""Eight large layers and few samples: what takes most is the optimizer step."""

from by_hand import arguments, train


def main():
    given = arguments(batch=32)
    import torch
    from torch import nn

    model = nn.Sequential(*(nn.Linear(8192, 8192) for _ in range(8))).cuda()

    def loss_of(batch):
        return model(batch).square().mean()

    train(given, model, model, loss_of, inputs=lambda size: torch.randn(size, 8192, device="cuda"))

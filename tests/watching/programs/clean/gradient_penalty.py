"""A penalty on the norm of gradients, through torch.autograd.grad, whose graph ends with the step."""

import torch
from parts import WIDTH, batches
from torch import nn


def main():
    critic = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Softplus(), nn.Linear(WIDTH, 1)).cuda()
    optimizer = torch.optim.Adam(critic.parameters())
    penalties = []
    for images, _ in batches(40):
        made = torch.randn_like(images)
        mixed = images.lerp(made, torch.rand(len(images), 1, device="cuda")).requires_grad_()
        (gradient,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
        penalty = (gradient.norm(dim=1) - 1).pow(2).mean()
        loss = critic(made).mean() - critic(images).mean() + 10 * penalty
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        penalties.append(penalty.item())


if __name__ == "__main__":
    main()

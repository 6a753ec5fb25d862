"""Two models that train each other: one backward pass keeps its graph, for the other that follows in the same step."""

import torch
from parts import WIDTH, batches
from torch import nn
from torch.nn import functional


def network(outputs):
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LeakyReLU(0.2), nn.Linear(WIDTH, outputs)).cuda()


def main():
    generator, critic = network(WIDTH), network(1)
    generator_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    critic_optimizer = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
    losses = {"generator": [], "critic": []}
    for images, _ in batches(40):
        ones, zeros = torch.ones(len(images), 1).cuda(), torch.zeros(len(images), 1).cuda()
        made = generator(torch.randn_like(images))

        generator_loss = functional.binary_cross_entropy_with_logits(critic(made), ones)
        generator_optimizer.zero_grad()
        generator_loss.backward(retain_graph=True)

        real = functional.binary_cross_entropy_with_logits(critic(images), ones)
        fake = functional.binary_cross_entropy_with_logits(critic(made.detach()), zeros)
        critic_optimizer.zero_grad()
        ((real + fake) / 2).backward()
        generator_optimizer.step()
        critic_optimizer.step()
        losses["generator"].append(generator_loss.item())
        losses["critic"].append((real + fake).item())


if __name__ == "__main__":
    main()

"""A GAN of two models: the discriminator steps twice for each step of the generator, which gathers its gradients."""

import torch
from torch import nn


def model_of(width):
    return nn.Sequential(nn.Linear(width, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, width))


def main():
    generator, discriminator = model_of(1024).cuda(), model_of(1024).cuda()
    of_generator = torch.optim.Adam(generator.parameters())
    of_discriminator = torch.optim.Adam(discriminator.parameters())
    kept = None
    for _ in range(6):
        for turn in range(2):
            noise = torch.randn(256, 1024, device="cuda")
            loss = discriminator(generator(noise).detach()).mean()
            of_discriminator.zero_grad()
            loss.backward()
            of_discriminator.step()
            (discriminator(generator(noise)).mean() / 2).backward()
            gradient = generator[0].weight.grad
            assert turn == 0 or gradient is kept, "the generator's gradients were freed before their use"
            kept = gradient
        of_generator.step()
        of_generator.zero_grad()

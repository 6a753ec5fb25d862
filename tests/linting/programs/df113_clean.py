import torch
from torch_optimizer import Adahessian


def penalty(model, loader, criterion):
    optimizer = torch.optim.Adam(model.parameters())
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward(create_graph=True)
        norm = sum(each.grad.pow(2).sum() for each in model.parameters())
        norm.backward()
        optimizer.step()


def second_order(model, loader, criterion):
    optimizer = Adahessian(model.parameters())
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward(create_graph=True)
        optimizer.step()


def wasserstein(critic, loader):
    optimizer = torch.optim.Adam(critic.parameters())
    for x in loader:
        x.requires_grad_()
        (grads,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
        loss = critic(x).mean() + (grads.norm(2, 1) - 1).pow(2).mean()
        loss.backward()
        optimizer.step()

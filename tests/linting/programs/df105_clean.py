import torch
from torch import nn


def two_backwards(model: nn.Module, loader, criterion, other):
    model.train()
    for x, y in loader:
        out = model(x)
        criterion(out, y).backward(retain_graph=True)
        other(out, y).backward()


def gradient_of_gradient(model, loader, criterion):
    print(list(model.parameters()))
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward(retain_graph=True)
        torch.autograd.grad(loss, model.parameters())


def carried_state(model, loader, criterion, hidden):
    print(list(model.parameters()))
    for x, y in loader:
        out, hidden = model(x, hidden)
        loss = criterion(out, y)
        loss.backward(retain_graph=True)


def jacobian(model, x):
    model.eval()
    out = model(x)
    for i in range(out.shape[1]):
        out[0, i].backward(retain_graph=True)


def shared_graph(model, encoder, batch, targets, criterion):
    print(list(model.parameters()), list(encoder.parameters()))
    features = encoder(batch)
    for target in targets:
        loss = criterion(model(features), target)
        loss.backward(retain_graph=True)


def goes_elsewhere(model, loader, criterion, regulariser):
    print(list(model.parameters()))
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward(retain_graph=True)
        regulariser.update_importance(loss)


def not_retained(model, loader, criterion):
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()

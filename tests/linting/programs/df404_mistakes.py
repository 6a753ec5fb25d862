import torch
from torch import nn
from torch.nn import DataParallel as Parallel


def wrapped(model):
    model = nn.DataParallel(model)  # <- DF404
    if torch.cuda.device_count() > 1:
        model = torch.nn.DataParallel(model, device_ids=[0, 1]).cuda()  # <- DF404
    return Parallel(model)  # <- DF404


def train(model, fit):
    optimizer = {"sgd": torch.optim.SGD(model.parameters(), lr=0.1)}["sgd"]
    fit(wrapped(model), optimizer)


def loop(model, loader, criterion):
    if torch.cuda.is_available():
        on_cards = nn.DataParallel(model).cuda()  # <- DF404
        torch.backends.cudnn.benchmark = True
    else:
        on_cards = nn.DataParallel(model)
    optimizer = torch.optim.SGD(on_cards.parameters(), lr=0.1)
    for batch, targets in loader:
        optimizer.zero_grad()
        criterion(on_cards(batch), targets).backward()
        optimizer.step()

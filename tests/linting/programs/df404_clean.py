import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def wrapped(model):
    model = DistributedDataParallel(model)
    if isinstance(model, nn.DataParallel):
        model = model.module
    return nn.DataParallel(model, device_ids=[0])


def step(model, batch):
    shown = nn.DataParallel(model)
    names = list(shown.module.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(batch).sum().backward()
    optimizer.step()
    return names


def probe(model, head, loader, criterion):
    model.encoder = nn.DataParallel(model.encoder)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    for batch, targets in loader:
        with torch.no_grad():
            features = model.encoder(batch)
        optimizer.zero_grad()
        criterion(head(features), targets).backward()
        optimizer.step()


def fit(model, loader, criterion, optimizer, evaluate):
    on_all_cards = nn.DataParallel(model)
    for batch, targets in loader:
        optimizer.zero_grad()
        criterion(model(batch), targets).backward()
        optimizer.step()
    return evaluate(on_all_cards, loader)


def started_from(model, reference_model, loader, criterion, optimizer):
    reference_model = nn.DataParallel(reference_model)
    model.load_state_dict(reference_model.module.state_dict())
    for batch, targets in loader:
        optimizer.zero_grad()
        criterion(model(batch), targets).backward()
        optimizer.step()


def test(model, loader):
    model = nn.DataParallel(model)
    model.eval()
    correct = 0
    with torch.no_grad():
        for batch, targets in loader:
            correct += (model(batch).argmax(dim=-1) == targets).sum().item()
    print(correct)

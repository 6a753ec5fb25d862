import torch
import torch.nn as nn


def losses(model, loader, criterion, optimizer):
    history = []
    for x, y in loader:
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss)  # <- DF102
    return sum(history) / len(history)


def outputs(model: nn.Module, loader, criterion, optimizer):
    model.train()
    preds, probabilities, labels = [], [], []
    for x, y in loader:
        out = model(x)
        loss = criterion(out, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        preds.append(out)  # <- DF102
        probabilities.append(out.softmax(-1))  # <- DF102
        labels.append(y)
    print(torch.cat(preds).argmax(1).eq(torch.cat(labels)).sum())


def by_key(model, loader, criterion):
    log = {"loss": []}
    for epoch in range(3):
        for x, y in loader:
            loss = criterion(model(x), y)
            loss.mean().backward()
            log["loss"].append(loss)  # <- DF102
        print(epoch)


def added_to(model, loader, criterion):
    kept = []
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()
        kept += [loss]  # <- DF102


class Trainer:
    def __init__(self):
        self.history = []

    def fit(self, loader):
        for x, y in loader:
            loss = self.criterion(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            self.history.append(loss)  # <- DF102


def evaluation(model: nn.Module, loader):
    model.eval()
    features = []
    for x in loader:
        features.append(model(x))  # <- DF102 DF201
    return torch.cat(features)

import torch
from torch import optim


def between(model, loader, criterion):
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.zero_grad()  # <- DF304
        optimizer.step()


def step_first(model, loader, criterion, optimizer):
    for x, y in loader:
        optimizer.step()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.zero_grad()  # <- DF304


class Trainer:
    def step(self, x, y):
        loss = self.criterion(self.model(x), y)
        self.scaler.scale(loss).backward()
        self.optimizer.zero_grad(set_to_none=True)  # <- DF304
        self.scaler.step(self.optimizer)
        self.scaler.update()


def at_every_micro_batch(model, loader, k):
    optimizer = torch.optim.Adam(model.parameters())
    for i, batch in enumerate(loader):
        optimizer.zero_grad()  # <- DF304
        loss = model(batch).mean() / k
        loss.backward()
        if (i + 1) % k == 0:
            optimizer.step()

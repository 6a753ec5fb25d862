import torch
from torch import nn


def plain(model: nn.Module, loader, criterion, optimizer):
    model.train()
    for x, y in loader:
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward(retain_graph=True)  # <- DF105
        optimizer.step()


def scaled(loader, scaler):
    model = nn.Linear(4, 4).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = nn.MSELoss()
    step = 0
    while step < 100:
        for x, y in loader:
            x, y = x.cuda(), y.cuda()
            loss = criterion(model(x), y)
            scaler.scale(loss).backward(retain_graph=True)  # <- DF105
            scaler.step(optimizer)
            step += 1


def with_a_bar(model: nn.Module, loader, criterion, optimizer, tqdm):
    model.train()
    total = 0
    bar = tqdm(enumerate(loader), total=len(loader))
    for _step, (x, y) in bar:
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward(retain_graph=True)  # <- DF105
        optimizer.step()
        total += loss  # <- DF101
    bar.write(f"{total / len(loader)}")


class Trainer:
    def fit(self, loader, epochs):
        self.model.train()
        print(sum(each.numel() for each in self.model.parameters()))
        for _epoch in range(epochs):
            for batch in loader:
                output = self.model(batch["x"])
                loss = self.criterion(output, batch["y"])
                loss.backward(retain_graph=True)  # <- DF105
                self.optimizer.step()
                self.optimizer.zero_grad()

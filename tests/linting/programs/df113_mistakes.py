import torch


def plain(model, loader, criterion):
    optimizer = torch.optim.Adam(model.parameters())
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward(create_graph=True)  # <- DF113
        optimizer.step()


class Trainer:
    def __init__(self, model):
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def fit(self, loader):
        while True:
            loss = self.model(next(loader)).mean()
            self.optimizer.zero_grad()
            loss.backward(create_graph=True)  # <- DF113
            self.optimizer.step()

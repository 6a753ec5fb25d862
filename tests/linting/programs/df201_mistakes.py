import torch
import torchvision
from torch import nn


def plain(model: nn.Module, loader, criterion):
    model.eval()
    total = 0
    for x, y in loader:
        out = model(x.cuda())  # <- DF201
        total += criterion(out, y.cuda()).item()
    return total


def train_and_validate(model: nn.Module, train_loader, val_loader, criterion, optimizer):
    for _epoch in range(10):
        model.train()
        for x, y in train_loader:
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        correct = 0
        for x, y in val_loader:
            correct += (model(x).argmax(1) == y).sum().item()  # <- DF201
        print(correct)


class Trainer:
    def validate(self):
        self.net.eval()
        seen = 0
        while seen < 100:
            x, y = next(self.loader)
            print(self.criterion(self.net(x), y).item())  # <- DF201
            seen += 1


def in_a_comprehension(model: nn.Module, loader):
    model.eval()
    return [model(x).argmax(-1) for x in loader]  # <- DF201


def chained(loader):
    model = torchvision.models.resnet18().cuda().eval()
    for x in loader:
        print(model(x).topk(5))  # <- DF201


def forward_by_name(model, loader):
    model = model.to("cuda")
    model.eval()
    for x in loader:
        print(model.forward(x).argmax())  # <- DF201


def ends_too_early(model: nn.Module, loader):
    model.eval()
    with torch.no_grad():
        print("evaluating")
    for x in loader:
        print(model(x).shape)  # <- DF201


def accuracy_of(model, loader):
    return [model(x).argmax() for x in loader]  # <- DF201


def its_only_caller(model: nn.Module, loader):
    model.eval()
    return accuracy_of(model, loader)


def loss_of(model, batch, criterion):
    x, y = batch
    return criterion(model(x), y)


def with_a_helper(model: nn.Module, loader, criterion, optimizer):
    model.train()
    for batch in loader:
        loss_of(model, batch, criterion).backward()
        optimizer.step()
    model.eval()
    for batch in loader:
        print(loss_of(model, batch, criterion).item())  # <- DF201


class WithAMethod:
    def run(self, batch):
        return self.model(batch)

    def test(self):
        self.model.eval()
        for batch in self.loader:
            print(self.run(batch))  # <- DF201


net = nn.Linear(3, 3)
net.eval()
for batch in torch.randn(5, 2, 3):
    print(net(batch))  # <- DF201


def next_word(model, words, vocabulary):
    out, hidden = model(torch.tensor([vocabulary.index(each) for each in words]))
    best = out[-1].argmax().item()
    return vocabulary[best], hidden


def sample(model, start, vocabulary, length):
    model.eval()
    words = list(start)
    for _ in range(length):
        word, _ = next_word(model, words, vocabulary)  # <- DF201
        words.append(word)
    return words


def with_a_state(model, loader):
    model.eval()
    for batch in loader:
        model.hidden = model.init_hidden()
        print(model(batch).argmax())  # <- DF201

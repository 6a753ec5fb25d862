import torch
import torch.nn.functional as F
from torch import nn


def plain(model, loader, optimizer, accumulation_steps):
    print(list(model.parameters()))
    optimizer.zero_grad()
    for i, (x, y) in enumerate(loader):
        loss = F.cross_entropy(model(x), y)
        loss.backward()  # <- DF301
        if (i + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()


def last_batch_too(model, loader, optimizer, scaler, args):
    criterion = nn.CrossEntropyLoss()
    model.train()
    print(list(model.parameters()))
    for i, (x, y) in enumerate(loader):
        with torch.autocast("cuda"):
            out = model(x)
            loss = criterion(out, y)
        scaler.scale(loss).backward()  # <- DF301
        if (i + 1) % args.accum == 0 or (i + 1) == len(loader):
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)


def by_a_name(model, loader, optimizer, k):
    print(list(model.parameters()))
    for i, (x, y) in enumerate(loader):
        loss = F.cross_entropy(model(x), y)
        last = (i + 1) % k == 0
        loss.backward()  # <- DF301
        if last:
            optimizer.step()
            optimizer.zero_grad()


def with_and_without_a_scaler(model, loader, optimizer, scaler, k):
    print(list(model.parameters()))
    for i, (x, y) in enumerate(loader):
        loss = F.cross_entropy(model(x), y)
        if scaler is not None:
            scaler.scale(loss).backward()  # <- DF301
        else:
            loss.backward()
        if (i + 1) % k == 0:
            if scaler is not None:
                scaler.step(optimizer)
                scaler.update()
            else:
                optimizer.step()
            optimizer.zero_grad()


class Trainer:
    def fit(self):
        print(list(self.model.parameters()))
        for step, batch in enumerate(self.loader):
            outputs = self.model(**batch)
            outputs.loss.backward()  # <- DF301
            if not (step + 1) % self.k:
                self.optimizer.step()
                self.optimizer.zero_grad()

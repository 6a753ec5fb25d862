import torch
import torch.nn.functional as F
from torch import nn, optim


def plain(model, loader, criterion, optimizer):
    total_loss = 0
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        total_loss += loss  # <- DF101
    return total_loss / len(loader)


def before_backward(model, loader, optimizer):
    running = 0.0
    for step, (x, y) in enumerate(loader):
        loss = F.cross_entropy(model(x), y)
        running = running + loss  # <- DF101
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 99:
            print(running.item() / 100)
            running = 0.0


def divided(model, loader, criterion, k):
    epoch_loss = torch.zeros(1)
    for x, y in loader:
        loss = criterion(model(x), y)
        scaled = loss / k
        scaled.backward()
        epoch_loss += loss * x.size(0)  # <- DF101
    print(epoch_loss)


def with_a_scaler(model, loader, criterion, optimizer, scaler):
    total = 0
    for x, y in loader:
        with torch.autocast("cuda"):
            loss = criterion(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        total += loss  # <- DF101
    return total


def with_accelerate(model, loader, accelerator, optimizer):
    total_loss = 0
    for batch in loader:
        outputs = model(**batch)
        accelerator.backward(outputs.loss)
        optimizer.step()
        total_loss += outputs.loss  # <- DF101


def by_key(model, loader, criterion, phase):
    sums = {"train": 0.0}
    batches = iter(loader)
    while True:
        x, y = next(batches)
        loss = criterion(model(x), y)
        loss.backward()
        sums[phase] += loss  # <- DF101


def train_step(model, batch, criterion, optimizer):
    optimizer.zero_grad()
    loss = criterion(model(batch[0]), batch[1])
    loss.backward()
    optimizer.step()
    return loss


def with_a_helper(model, loader, criterion, optimizer):
    total_loss = 0
    for epoch in range(10):
        for batch in loader:
            total_loss += train_step(model, batch, criterion, optimizer)  # <- DF101
        print(epoch, total_loss)


def with_accumulate(model, loader, accelerator, optimizer, log):
    sums = {"loss": 0.0}
    for batch in loader:
        with accelerator.accumulate(model), accelerator.autocast():
            outputs = model(**batch)
            loss = outputs["loss"].mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            if log:
                sums["loss"] += loss.float()  # <- DF101


def with_deepspeed(engine, loader):
    shown = 0.0
    for x, y in loader:
        loss = engine(x, y)
        engine.backward(loss)
        engine.step()
        shown = loss + shown  # <- DF101


def with_apex(model, loader, optimizer, amp):
    total = 0
    for x, y in loader:
        loss = model(x, y)
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        total += loss  # <- DF101


def in_a_closure(model, loader, optimizer):
    total = 0

    def run():
        nonlocal total
        for x in loader:
            loss = model(x).mean()
            loss.backward()
            optimizer.step()
            total += loss  # <- DF101

    run()
    return total


def smoothed(model, loader, criterion, optimizer):
    average = None
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        average = loss if average is None else 0.9 * average + 0.1 * loss  # <- DF101
        print(float(average))


class Trainer:
    def __init__(self, model, loader):
        self.model = model
        self.loader = loader
        self.optimizer = optim.AdamW(model.parameters())
        self.criterion = nn.CrossEntropyLoss()
        self.total_loss = 0.0

    def train_epoch(self):
        for x, y in self.loader:
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            self.total_loss += loss  # <- DF101

    def one_step(self, x, y):
        loss = self.criterion(self.model(x), y)
        loss.backward()
        self.total_loss += loss  # <- DF101


def evaluation(model: nn.Module, loader, criterion):
    model.eval()
    val_loss = 0
    for x, y in loader:
        output = model(x)  # <- DF201
        val_loss += criterion(output, y)  # <- DF101
    return val_loss / len(loader)

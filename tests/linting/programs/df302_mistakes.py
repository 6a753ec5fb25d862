import torch
from torch.cuda.amp import GradScaler
from torch.nn.utils import clip_grad_norm_ as clip

scaler = GradScaler()


def plain(model, loader, optimizer):
    for x, y in loader:
        with torch.autocast("cuda"):
            loss = model(x, y)
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # <- DF302
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def under_a_condition(model, loader, optimizer, args):
    for x, y in loader:
        loss = model(x, y)
        scaler.scale(loss).backward()
        if args.clip:
            clip(model.parameters(), args.clip)  # <- DF302
        scaler.step(optimizer)
        scaler.update()


class Trainer:
    def __init__(self):
        self.grad_scaler = torch.amp.GradScaler("cuda")

    def step(self, loss):
        self.grad_scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_value_(self.model.parameters(), 0.5)  # <- DF302
        self.grad_scaler.step(self.optimizer)
        self.grad_scaler.update()


def unscaled_too_late(model, loader, optimizer):
    for x, y in loader:
        scaler.scale(model(x, y)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # <- DF302
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()

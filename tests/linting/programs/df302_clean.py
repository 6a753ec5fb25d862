import torch
from torch.amp import GradScaler

scaler = GradScaler("cuda")


def unscaled(model, loader, optimizer):
    for x, y in loader:
        scaler.scale(model(x, y)).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


def two_ways(model, loader, optimizer, amp):
    for x, y in loader:
        loss = model(x, y)
        if amp:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()


def two_ways_with_unscale(model, loader, optimizer, amp):
    for x, y in loader:
        loss = model(x, y)
        if amp:
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
        else:
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if amp:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()


def with_accelerate(model, loader, optimizer, accelerator):
    for batch in loader:
        accelerator.backward(model(batch))
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

import torch
from torch.cuda.amp import autocast


def outside(model, loader, optimizer):
    with torch.autocast("cuda", dtype=torch.bfloat16):  # <- DF112
        for x, y in loader:
            loss = model(x, y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()


def with_another(model, loader, optimizer, scaler, profiler):
    with profiler, autocast():  # <- DF112
        for _epoch in range(3):
            for x, y in loader:
                loss = model(x, y)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()


@torch.autocast(device_type="cuda")  # <- DF112
def decorated(model, loader, optimizer):
    for x, y in loader:
        loss = model(x, y)
        loss.backward()
        optimizer.step()

import torch
from torch.cuda.amp import autocast


def inside(model, loader, optimizer):
    for x, y in loader:
        with autocast():
            loss = model(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def around_the_step_only(model, loader, optimizer):
    for x, y in loader:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(x, y)
            loss.backward()
            optimizer.step()


def without_a_cache(model, loader, optimizer):
    with torch.autocast("cuda", cache_enabled=False):
        for x, y in loader:
            model(x, y).backward()
            optimizer.step()


def evaluation(model, loader):
    model.eval()
    with torch.no_grad(), torch.autocast("cuda"):
        for x in loader:
            model(x)

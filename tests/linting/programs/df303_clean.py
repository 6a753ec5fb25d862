import torch
from torch.optim.lr_scheduler import OneCycleLR, StepLR


def with_the_optimizer(model, loader, k):
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = StepLR(optimizer, 30)
    for i, batch in enumerate(loader):
        (model(batch).mean() / k).backward()
        if (i + 1) % k == 0:
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()


def once_per_epoch(model, loader, k):
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = StepLR(optimizer, 30)
    for _epoch in range(3):
        for i, batch in enumerate(loader):
            (model(batch).mean() / k).backward()
            if (i + 1) % k == 0:
                optimizer.step()
                optimizer.zero_grad()
        scheduler.step()


def counted_in_micro_batches(model, loader, k):
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = OneCycleLR(optimizer, 1e-3, total_steps=len(loader) * 3)
    for i, batch in enumerate(loader):
        (model(batch).mean() / k).backward()
        if (i + 1) % k == 0:
            optimizer.step()
            optimizer.zero_grad()
        scheduler.step()


def under_its_own_condition(model, loader, k):
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = StepLR(optimizer, 30)
    for i, batch in enumerate(loader):
        (model(batch).mean() / k).backward()
        if (i + 1) % k == 0:
            optimizer.step()
            optimizer.zero_grad()
        if (i + 1) % k == 0:
            scheduler.step()

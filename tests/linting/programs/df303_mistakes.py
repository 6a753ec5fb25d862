import torch
from torch.optim.lr_scheduler import CosineAnnealingLR
from transformers import get_linear_schedule_with_warmup


def plain(model, loader, k, epochs):
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = get_linear_schedule_with_warmup(optimizer, 100, len(loader) // k * epochs)
    for i, batch in enumerate(loader):
        loss = model(**batch).loss / k
        loss.backward()
        if (i + 1) % k == 0:
            optimizer.step()
            optimizer.zero_grad()
        scheduler.step()  # <- DF303


def fixed_length(model, loader, k):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = CosineAnnealingLR(optimizer, T_max=1000)
    for i, batch in enumerate(loader):
        (model(batch).mean() / k).backward()
        if i % k == k - 1:
            optimizer.step()
            optimizer.zero_grad()
        schedule.step()  # <- DF303

"""Trains from a DataLoader, clips, schedules and evaluates from another one; with fp16 and a GradScaler if asked to."""

import torch
from language_model import CONTEXT, VOCABULARY, Model, loss_of
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, TensorDataset

COUNT, BATCH = 4, 16


def loaders(batch, shuffle):
    tokens = TensorDataset(torch.randint(VOCABULARY, (5 * BATCH, CONTEXT + 1)))
    return DataLoader(tokens, batch_size=batch, shuffle=shuffle), DataLoader(tokens, batch_size=BATCH)


def evaluate(model, loader):
    model.eval()
    with torch.no_grad():
        losses = [loss_of(model, tokens.cuda()).item() for (tokens,) in loader]
    model.train()
    return sum(losses) / len(losses)


def main(scaled="", shuffle="", none=""):
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader, others = loaders(BATCH, bool(shuffle))
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-3, total_steps=2 * 5 * COUNT)
    scaler = torch.amp.GradScaler(enabled=bool(scaled))
    for _ in range(2):
        evaluate(model, others)
        for (tokens,) in loader:
            with torch.autocast("cuda", torch.float16, enabled=bool(scaled)):
                loss = loss_of(model, tokens.cuda())
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            if none:
                for parameter in model.parameters():
                    parameter.grad = None
            optimizer.zero_grad()

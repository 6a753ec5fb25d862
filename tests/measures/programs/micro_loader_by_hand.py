"""`micro_loader` with four micro-batches, written by hand."""

import torch
from language_model import Model, loss_of
from micro_loader import BATCH, COUNT, evaluate, loaders
from torch.nn.utils import clip_grad_norm_


def main(scaled="", shuffle=""):
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader, others = loaders(BATCH // COUNT, bool(shuffle))
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-3, total_steps=2 * 5)
    scaler = torch.amp.GradScaler(enabled=bool(scaled))
    for _ in range(2):
        evaluate(model, others)
        for number, (tokens,) in enumerate(loader, start=1):
            with torch.autocast("cuda", torch.float16, enabled=bool(scaled)):
                loss = loss_of(model, tokens.cuda())
            scaler.scale(loss / COUNT).backward()
            if number % COUNT == 0:
                scaler.unscale_(optimizer)
                clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                scheduler.step()
                optimizer.zero_grad()

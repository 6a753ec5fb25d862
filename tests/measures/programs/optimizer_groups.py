"""`language_model` with groups, a schedule, fp16 with a scaler, and clipping; its optimizer is chosen by name."""

import torch
from language_model import Model, batch_of, loss_of


def groups_of(model):
    decayed = [(name, each) for name, each in model.named_parameters() if each.dim() > 1]
    others = [(name, each) for name, each in model.named_parameters() if each.dim() < 2]
    return [
        {"params": decayed, "weight_decay": 0.1, "foreach": True},
        {"params": others, "weight_decay": 0.0, "betas": (0.7, 0.9)},
    ]


def made(which, groups):
    if which == "plain":
        return torch.optim.AdamW(groups, 1e-3, (0.8, 0.95), eps=1e-6, foreach=True)
    for group in groups:
        group.pop("foreach", None)
    if which == "fused":
        return torch.optim.AdamW(groups, 1e-3, (0.8, 0.95), eps=1e-6, fused=True)
    if which == "8bit":
        import bitsandbytes

        return bitsandbytes.optim.AdamW8bit(groups, 1e-3, (0.8, 0.95), eps=1e-6)
    if which == "paged":
        import bitsandbytes

        return bitsandbytes.optim.PagedAdamW8bit(groups, 1e-3, (0.8, 0.95), eps=1e-6)
    if which == "adafactor":
        groups[1].pop("betas")
        return torch.optim.Adafactor(groups, 1e-3)
    from optimizer_on_host import OffloadedAdamW

    assert which == "host"
    return OffloadedAdamW(groups, 1e-3, (0.8, 0.95), eps=1e-6, fused=True)


def main(which="plain"):
    model = Model().cuda()
    optimizer = made(which, groups_of(model))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))
    scaler = torch.amp.GradScaler()
    for _ in range(5):
        optimizer.zero_grad()
        for _ in range(2):
            with torch.autocast("cuda", torch.float16):
                loss = loss_of(model, batch_of(4))
            scaler.scale(loss / 2).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        schedule.step()

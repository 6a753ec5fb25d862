"""Moves 300 MiB of activations, of at most 1 MiB each, to the host; fails where they fill this machine's memory."""

from pathlib import Path

import language_model
import torch
from offload_by_hand import offloaded_loss_of

MIB = 1 << 20


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def main():
    language_model.LAYERS = 1
    small = language_model.Model().cuda()
    offloaded_loss_of(small, language_model.batch_of(4)).backward()
    language_model.LAYERS = 24
    model = language_model.Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    before = resident_bytes()
    for step in range(3):
        optimizer.zero_grad()
        offloaded_loss_of(model, language_model.batch_of(4)).backward()
        optimizer.step()
        grown = resident_bytes() - before
        print(f"step {step}: {grown >> 20} MiB more")
        if grown > 128 * MIB:
            raise MemoryError(f"step {step} left {grown >> 20} MiB more of this machine's memory in use")

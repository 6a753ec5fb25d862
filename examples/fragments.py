"""Each batch is larger than the one before, and its result stays: no hole that is left is large enough for the next.

dryfit run --gpu rtx-3060 --record run.dryfit examples/fragments.py
dryfit explain run.dryfit
"""

import torch

MIB = 1 << 20
results = []
for batch in range(24):
    size_bytes = (400 + 20 * batch) * MIB
    work = torch.empty(size_bytes, dtype=torch.uint8, device="cuda")  # a segment of its own
    del work
    results.append(torch.empty(size_bytes // 2, dtype=torch.uint8, device="cuda"))  # its first half

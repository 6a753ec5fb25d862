"""Operators whose result has the size of a large tensor of unknown values: what they cost the host."""

import resource

import torch

many = 60_000_000
big = torch.empty(many, dtype=torch.int64, device="cuda")
small = torch.empty(4, dtype=torch.int64, device="cuda")
mask = big > 0


def shapes(results):
    return [list(each.shape) for each in results if each.numel()]


def largest_resident_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


before = largest_resident_bytes()
rows = big.reshape(-1, 4)
_, inverse, counts = torch.unique(small, return_inverse=True, return_counts=True)
found = {
    "unique": list(torch.unique(big).shape),
    "unique_all": shapes(torch.unique(big, return_inverse=True, return_counts=True)),
    "unique_int16": shapes(torch.unique(big.short(), return_inverse=True)),
    "unique_bool": shapes(torch.unique(mask, return_inverse=True, return_counts=True)),
    "unique_rows": shapes(torch.unique(rows, dim=0, return_inverse=True, return_counts=True)),
    "unique_columns": shapes(torch.unique(rows, dim=-1, return_inverse=True, return_counts=True)),
    "unique_consecutive": shapes(torch.unique_consecutive(big, return_inverse=True, return_counts=True)),
    "consecutive_rows": shapes(torch.unique_consecutive(rows, dim=0, return_counts=True)),
    "nonzero": list(big.nonzero().shape),
    "where": list(torch.where(mask)[0].shape),
    "masked": list(big[mask].shape),
    "repeat_interleave": list(torch.repeat_interleave(big).shape),
    "bincount": list(torch.bincount(big).shape),
    "histc": list(torch.histc(big.float()).shape),
    "sort": list(big.sort().indices.shape),
    "topk": list(big.topk(5).indices.shape),
    # A known number shown a million million times is too much to go through, so what comes of it is unknown.
    "expanded": torch.full((1,), 3, device="cuda").expand(1 << 40).sum().item(),
    "expanded_equal": torch.equal(torch.ones(1, device="cuda").expand(1 << 40), torch.ones(1 << 10, device="cuda")),
    "small_inverse": inverse.tolist(),
    "small_counts": counts.tolist(),
}
found["host_growth_bytes"] = largest_resident_bytes() - before

"""A small known tensor that the CPU has no kernel for."""

import torch

x = torch.tensor([1j, 2j, 1j], device="cuda")
results = torch.unique(x, return_inverse=True, return_counts=True)
found = {"unique": [list(each.shape) for each in results]}

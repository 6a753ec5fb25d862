"""Two ranks of which one dies, or never comes."""

import os
import sys

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
t = torch.ones(1, device="cuda")
if dist.get_rank() == 1 and sys.argv[1] == "stays_away":
    sys.stdin.read()  # alive until the test has seen enough
    os._exit(0)
dist.all_reduce(t)
if dist.get_rank() == 1:
    os._exit(3)
dist.all_reduce(t)

"""DDP: every rank keeps the whole model. `dryfit run --world 8 examples/distributed/ddp.py [WORD ...]`.

Words: with "view" the gradients are views of DDP's buckets, and their copy is gone; "static" says that the graph is
always the same, "unused" looks for parameters that a step does not use, "cap=100" has buckets of 100 MiB, "bf16" sends
gradients in bfloat16, "accumulate" runs four micro-batches a step, "no_sync" too, of which the last alone reduces, and
"zeros" sets gradients to zero in place of None.
"""

import contextlib
import os
import sys

import torch
from torch import distributed
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

MICRO_BATCHES = 4 if {"accumulate", "no_sync"} & set(sys.argv) else 1

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
distributed.init_process_group("nccl")
model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(8)]).cuda()
model = DistributedDataParallel(
    model,
    gradient_as_bucket_view="view" in sys.argv,
    static_graph="static" in sys.argv,
    find_unused_parameters="unused" in sys.argv,
    bucket_cap_mb=next((float(word[4:]) for word in sys.argv if word.startswith("cap=")), None),
)
if "bf16" in sys.argv:
    model.register_comm_hook(None, bf16_compress_hook)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    for micro_batch in range(MICRO_BATCHES):
        reduces = "no_sync" not in sys.argv or micro_batch == MICRO_BATCHES - 1
        with contextlib.nullcontext() if reduces else model.no_sync():
            model(torch.randn(16, 2048, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none="zeros" not in sys.argv)
distributed.destroy_process_group()

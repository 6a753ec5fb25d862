"""FSDP1: every rank has a part of each unit's flat parameter. `dryfit run --world 8 examples/distributed/fsdp1.py`.

Words: "bf16" computes in bfloat16 and reduces in float32, "grad_op" (SHARD_GRAD_OP) keeps parameters whole from the
forward pass to the backward pass, "hybrid" (HYBRID_SHARD) shards within halves of the ranks, "offload" keeps shards on
the host, "orig" has use_orig_params=True, and "no_sync" reduces gradients with the last of four micro-batches alone.
"""

import contextlib
import functools
import os
import sys

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

VOCABULARY, LENGTH, WIDTH, HEADS, BLOCKS, BATCH = 1000, 128, 512, 8, 6, 2
MICRO_BATCHES = 4 if "no_sync" in sys.argv else 1

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
distributed.init_process_group("nccl")
world = distributed.get_world_size()
strategy, mesh = ShardingStrategy.FULL_SHARD, init_device_mesh("cuda", (world,))
if "grad_op" in sys.argv:
    strategy = ShardingStrategy.SHARD_GRAD_OP
if "hybrid" in sys.argv:
    strategy, mesh = ShardingStrategy.HYBRID_SHARD, init_device_mesh("cuda", (2, world // 2))
model = FullyShardedDataParallel(
    nn.Sequential(
        nn.Embedding(VOCABULARY, WIDTH),
        *[nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.0, batch_first=True) for _ in range(BLOCKS)],
        nn.Linear(WIDTH, VOCABULARY),
    ),
    device_id=torch.cuda.current_device(),
    device_mesh=mesh,
    sharding_strategy=strategy,
    auto_wrap_policy=functools.partial(
        transformer_auto_wrap_policy, transformer_layer_cls={nn.TransformerEncoderLayer}
    ),
    mixed_precision=MixedPrecision(torch.bfloat16, torch.float32) if "bf16" in sys.argv else None,
    cpu_offload=CPUOffload("offload" in sys.argv),
    use_orig_params="orig" in sys.argv,
)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    for micro_batch in range(MICRO_BATCHES):
        tokens = torch.randint(VOCABULARY, (BATCH, LENGTH), device="cuda")
        with contextlib.nullcontext() if micro_batch == MICRO_BATCHES - 1 else model.no_sync():
            nn.functional.cross_entropy(model(tokens).flatten(0, 1).float(), tokens.flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
distributed.destroy_process_group()

"""A pipeline of MLP blocks, as many stages as ranks. It needs its neighbours, so these are real processes:

    dryfit run torchrun --nproc-per-node 4 examples/distributed/pipeline.py [SCHEDULE]

SCHEDULE is torch's name of one: GPipe (default), 1F1B, or one with two stages a rank: Interleaved1F1B, LoopedBFS,
InterleavedZeroBubble, ZBVZeroBubble, DualPipeV.
"""

import os
import sys

import torch
from torch import distributed, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class

BLOCKS, WIDTH = 8, 1024
MICRO_BATCHES, SAMPLES = 8, 512  # of so many samples each

name = sys.argv[1] if len(sys.argv) > 1 else "GPipe"
Schedule = get_schedule_class(name)
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
distributed.init_process_group("nccl")
rank, ranks = distributed.get_rank(), distributed.get_world_size()

if issubclass(Schedule, PipelineScheduleSingle):
    mine, stages = [rank], ranks
elif "V" in name:  # down the ranks, and up again
    mine, stages = [rank, 2 * ranks - 1 - rank], 2 * ranks
else:
    mine, stages = [rank, ranks + rank], 2 * ranks


def stage_model():
    blocks = [
        nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        for _ in range(BLOCKS // stages)
    ]
    return nn.Sequential(*blocks).to(device)


models = nn.ModuleList([stage_model() for _ in mine])
of_rank = [PipelineStage(model, index, stages, device) for model, index in zip(models, mine, strict=True)]
schedule = Schedule(
    of_rank[0] if issubclass(Schedule, PipelineScheduleSingle) else of_rank,
    n_microbatches=MICRO_BATCHES,
    loss_fn=nn.functional.mse_loss,
)
optimizer = torch.optim.AdamW(models.parameters())
for _ in range(4):
    batch = [torch.randn(MICRO_BATCHES * SAMPLES, WIDTH, device=device)] if 0 in mine else []
    target = torch.randn(MICRO_BATCHES * SAMPLES, WIDTH, device=device) if stages - 1 in mine else None
    schedule.step(*batch, target=target)
    optimizer.step()
    optimizer.zero_grad()
distributed.destroy_process_group()

"""DeepSpeed ZeRO, any stage and offload. `dryfit run --world 8 examples/distributed/deepspeed_zero.py --stage 3`."""

import argparse

import deepspeed
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--stage", type=int, default=2)
parser.add_argument("--offload", choices=("nothing", "optimizer", "all"), default="nothing")
parser.add_argument("--dtype", choices=("bf16", "fp16"), default="bf16")
parser.add_argument("--max-live", type=int, default=10**9, help="parameters that ZeRO-3 keeps gathered")
parser.add_argument("--layers", type=int, default=8)
parser.add_argument("--width", type=int, default=2048)
parser.add_argument("--adam", choices=("torch", "deepspeed"), default="torch")
parser.add_argument("--local_rank", type=int, default=0, help="from DeepSpeed's launcher")
arguments = parser.parse_args()

on_host = {"device": "cpu", "pin_memory": True}
offloaded = {"optimizer": ["offload_optimizer"], "all": ["offload_optimizer", "offload_param"]}
config = {
    "train_micro_batch_size_per_gpu": 16,
    arguments.dtype: {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": arguments.adam == "torch"}},
    "zero_optimization": {
        "stage": arguments.stage,
        "reduce_bucket_size": 2**23,
        "allgather_bucket_size": 2**23,
        "stage3_prefetch_bucket_size": 2**22,
        "stage3_max_live_parameters": arguments.max_live,
        "stage3_max_reuse_distance": arguments.max_live,
        **dict.fromkeys(offloaded.get(arguments.offload, ()), on_host),
    },
}

deepspeed.init_distributed()
model = torch.nn.Sequential(*[torch.nn.Linear(arguments.width, arguments.width) for _ in range(arguments.layers)])
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
for _ in range(6):
    batch = torch.randn(16, arguments.width, device=engine.device, dtype=next(model.parameters()).dtype)
    engine.backward(engine(batch).sum())
    engine.step()

"""A language model under DDP, whose rank plays alone: as it is, or with one thing done by hand, or two."""

import os

import torch
from language_model import LAYERS, Model, train
from torch import distributed
from torch.nn.parallel import DistributedDataParallel


def main(by_hand="", fused=""):
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group("nccl")
    if by_hand == "fsdp":
        from torch.distributed.fsdp import fully_shard

        model = Model()
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
    else:
        model = Model().cuda()
        if by_hand == "lora":
            import peft

            layers = [f"blocks.{block}.{name}" for block in range(LAYERS) for name in ("qkv", "out", "up", "down")]
            model = peft.get_peft_model(model, peft.LoraConfig(r=16, lora_alpha=32, target_modules=layers))
        if by_hand == "frozen":
            for module in (model.embed, model.place, *model.blocks[: LAYERS // 2]):
                module.requires_grad_(False)
        model = DistributedDataParallel(model, gradient_as_bucket_view=by_hand == "view")
    trained = [each for each in model.parameters() if each.requires_grad]
    settings = {"lr": 1e-3, **({"fused": True} if fused else {})}
    if by_hand == "zero":
        from torch.distributed.optim import ZeroRedundancyOptimizer

        optimizer = ZeroRedundancyOptimizer(trained, optimizer_class=torch.optim.AdamW, **settings)
    else:
        optimizer = torch.optim.AdamW(trained, **settings)
    train(model, optimizer)
    distributed.destroy_process_group()

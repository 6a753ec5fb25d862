"""A language model with its loop, in float32 or bfloat16; with QLoRA written by hand, if asked to."""

import bitsandbytes
import peft
import torch
from language_model import Model, train


def quantize(model, layers):
    for name in layers:
        linear = model.get_submodule(name)
        layer = bitsandbytes.nn.Linear4bit(
            linear.in_features,
            linear.out_features,
            bias=True,
            compute_dtype=torch.bfloat16,
            quant_type="nf4",
            device="meta",
        )
        layer.weight = bitsandbytes.nn.Params4bit(
            linear.weight.data, requires_grad=False, quant_type="nf4", module=layer
        )
        layer.bias = linear.bias
        model.set_submodule(name, layer)


def main(dtype="float32", adapted="", place="cpu"):
    dtype = getattr(torch, dtype)
    with torch.device(place):
        model = Model()
    if not adapted:
        model.to("cuda", dtype)
    else:
        layers = [f"blocks.{block}.{name}" for block in range(4) for name in ("qkv", "out", "up", "down")]
        model.to(dtype)
        quantize(model, layers)
        model.cuda()
        model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
        model = peft.get_peft_model(model, peft.LoraConfig(r=16, lora_alpha=32, target_modules=layers))
    train(model, torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=1e-3))

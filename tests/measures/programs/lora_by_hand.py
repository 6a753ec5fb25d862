"""`language_model` with LoRA, written by hand."""

import peft
import torch
from language_model import Model, train


def main():
    model = Model().cuda()
    layers = [f"blocks.{block}.{name}" for block in range(4) for name in ("qkv", "out", "up", "down")]
    model = peft.get_peft_model(model, peft.LoraConfig(r=16, lora_alpha=32, target_modules=layers))
    train(model, torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=1e-3))

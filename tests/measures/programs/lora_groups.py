"""A language model in bfloat16 whose optimizer has two groups of parameters; with LoRA, if asked to."""

import peft
import torch
from language_model import Model, train


def main(adapted=""):
    model = Model().to("cuda", torch.bfloat16)
    if adapted:
        layers = ["qkv", "out", "up", "down"]
        model = peft.get_peft_model(model, peft.LoraConfig(r=16, lora_alpha=32, target_modules=layers))
    trained = [each for each in model.parameters() if each.requires_grad]
    groups = [
        {"params": (each for each in trained if each.dim() > 1), "weight_decay": 0.1},
        {"params": (each for each in trained if each.dim() <= 1), "weight_decay": 0.0},
    ]
    train(model, torch.optim.AdamW(groups, lr=1e-3))

"""Transformers' Trainer with a small Llama; with LoRA of this rank, if asked to."""

import tempfile

import peft
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

CONFIG = LlamaConfig(
    vocab_size=1024, hidden_size=128, intermediate_size=256, num_hidden_layers=3, num_attention_heads=4
)


def main(rank="", loop=""):
    model = LlamaForCausalLM(CONFIG)
    tokens = torch.randint(1024, (32, 128))
    if loop:
        model.cuda()
    if rank:
        config = peft.LoraConfig(r=int(rank), lora_alpha=2 * int(rank), target_modules="all-linear")
        model = peft.get_peft_model(model, config)
    if loop:
        optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=1e-3)
        for batch in tokens.cuda().split(4):
            model(input_ids=batch, labels=batch).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return
    arguments = TrainingArguments(
        tempfile.mkdtemp(), per_device_train_batch_size=8, max_steps=4, report_to=[], save_strategy="no"
    )
    examples = [{"input_ids": each, "labels": each} for each in tokens]
    Trainer(model=model, args=arguments, train_dataset=examples).train()

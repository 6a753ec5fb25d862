"""Transformers' Trainer with a small GPT-2, in batches of 16: as many micro-batches as the argument says."""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


def tokens(count, length=128):
    return [{"input_ids": each, "labels": each} for each in torch.randint(1024, (count, length))]


def model():
    return GPT2LMHeadModel(GPT2Config(vocab_size=1024, n_positions=128, n_embd=128, n_layer=2, n_head=2))


def main(count="1"):
    arguments = TrainingArguments(
        tempfile.mkdtemp(),
        per_device_train_batch_size=16 // int(count),
        gradient_accumulation_steps=int(count),
        max_steps=4,
        report_to=[],
        save_strategy="no",
    )
    Trainer(model=model(), args=arguments, train_dataset=tokens(64)).train()

"""Transformers' Trainer with a small GPT-2, that logs at each step and evaluates after every third."""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

if __name__ == "__main__":
    tokens = [{"input_ids": each, "labels": each} for each in torch.randint(1024, (160, 64))]
    arguments = TrainingArguments(
        tempfile.mkdtemp(), per_device_train_batch_size=4, max_steps=20, save_strategy="no", report_to=[],
        disable_tqdm=True, logging_steps=1, eval_strategy="steps", eval_steps=3,
    )  # fmt: skip
    model = GPT2LMHeadModel(GPT2Config(vocab_size=1024, n_positions=64, n_embd=128, n_layer=4, n_head=2))
    Trainer(model, arguments, train_dataset=tokens, eval_dataset=tokens[:8]).train()

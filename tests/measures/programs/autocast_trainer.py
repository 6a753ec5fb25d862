"""A small GPT-2 trained by Hugging Face's Trainer; its arguments may be given more settings, as JSON."""

import json
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, _):
        tokens = torch.zeros(128, dtype=torch.long)
        return {"input_ids": tokens, "labels": tokens}


def main(settings="{}"):
    model = GPT2LMHeadModel(GPT2Config(n_embd=256, n_layer=3, n_head=4, vocab_size=8192))
    arguments = TrainingArguments(
        tempfile.mkdtemp(),
        per_device_train_batch_size=8,
        max_steps=4,
        eval_strategy="steps",
        eval_steps=2,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        **json.loads(settings),
    )
    Trainer(model, arguments, train_dataset=Tokens(), eval_dataset=Tokens()).train()

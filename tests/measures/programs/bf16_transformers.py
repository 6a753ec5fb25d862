"""A small Llama trained by Hugging Face's Trainer; in bfloat16 by hand."""

import tempfile

import torch
import transformers
from autocast_trainer import Tokens


def main(dtype="float32"):
    config = transformers.LlamaConfig(
        hidden_size=128, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, vocab_size=8192
    )
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
    arguments = transformers.TrainingArguments(
        tempfile.mkdtemp(),
        per_device_train_batch_size=8,
        max_steps=4,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    transformers.Trainer(model, arguments, train_dataset=Tokens()).train()

"""Hugging Face Trainer and a small Llama or GPT-2, as it is or checkpointed as the Trainer's settings have it."""

import tempfile
import warnings

import torch
import transformers
from checkpoint_by_hand import KEEP
from transformers import Trainer, TrainingArguments

WAYS = {
    "plain": {},
    "all": {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": False}},
    "every second": {
        "gradient_checkpointing": True,
        "gradient_checkpointing_kwargs": {"use_reentrant": False, "every_n_layers": 2},
    },
    "selective": {},
}


def model_of(kind):
    if kind == "gpt2":
        config = transformers.GPT2Config(n_layer=3, n_embd=128, n_head=4, vocab_size=1024)
        return transformers.GPT2LMHeadModel(config)
    if kind == "t5":
        config = transformers.T5Config(
            num_layers=2, d_model=128, d_ff=256, num_heads=4, d_kv=32, vocab_size=1024, decoder_start_token_id=0
        )
        return transformers.T5ForConditionalGeneration(config)
    config = transformers.LlamaConfig(
        num_hidden_layers=3, hidden_size=128, intermediate_size=256, num_attention_heads=4, vocab_size=1024
    )
    model = transformers.LlamaForCausalLM(config)
    if kind == "lora":
        import peft

        model = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"))
    return model


def main(kind="llama", way="plain"):
    warnings.simplefilter("ignore")
    model = model_of(kind)
    if way == "selective":
        model.gradient_checkpointing_enable({"use_reentrant": False, "context_fn": KEEP})
    tokens = torch.randint(1024, (64, 256))
    data = [{"input_ids": row, "labels": row} for row in tokens]
    arguments = TrainingArguments(
        tempfile.mkdtemp(), per_device_train_batch_size=8, max_steps=4, report_to=[], save_strategy="no", **WAYS[way]
    )
    Trainer(model=model, args=arguments, train_dataset=data).train()

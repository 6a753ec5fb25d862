"""Transformers' Trainer with a small Llama that is loaded from a folder; with QLoRA written by hand, if asked to."""

import tempfile

import peft
import torch
from lora_trainer import CONFIG
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaForCausalLM, Trainer, TrainingArguments


def main(adapted=""):
    folder = tempfile.mkdtemp()
    LlamaForCausalLM(CONFIG).save_pretrained(folder)
    if not adapted:
        model = AutoModelForCausalLM.from_pretrained(folder)
    else:
        quantized = BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16
        )
        model = AutoModelForCausalLM.from_pretrained(folder, quantization_config=quantized)
        model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
        model = peft.get_peft_model(model, peft.LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"))
    arguments = TrainingArguments(
        tempfile.mkdtemp(), per_device_train_batch_size=8, max_steps=4, report_to=[], save_strategy="no"
    )
    examples = [{"input_ids": each, "labels": each} for each in torch.randint(1024, (32, 128))]
    Trainer(model=model, args=arguments, train_dataset=examples).train()

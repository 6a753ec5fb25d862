"""Transformers' Trainer with a small BERT; its embeddings and its first two layers frozen, if asked to."""

import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

CONFIG = BertConfig(vocab_size=1024, hidden_size=128, num_hidden_layers=4, num_attention_heads=2, intermediate_size=512)


def main(frozen=""):
    model = BertForSequenceClassification(CONFIG)
    if frozen:
        for module in (model.bert.embeddings, *model.bert.encoder.layer[:2]):
            module.requires_grad_(False)
    arguments = TrainingArguments(
        tempfile.mkdtemp(), per_device_train_batch_size=8, max_steps=4, report_to=[], save_strategy="no"
    )
    tokens = [{"input_ids": each, "labels": 1} for each in torch.randint(1024, (64, 128))]
    Trainer(model=model, args=arguments, train_dataset=tokens).train()

# DF101 self.loss_so_far, host
"""A Trainer of the program's own sums the losses in compute_loss, to log more than the library does."""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class LoggingTrainer(Trainer):
    loss_so_far = 0.0

    def compute_loss(self, model, inputs, return_outputs=False, **others):
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **others)
        self.loss_so_far += loss  # <- holder
        return (loss, outputs) if return_outputs else loss


if __name__ == "__main__":
    tokens = [{"input_ids": each, "labels": each} for each in torch.randint(1024, (160, 64))]
    arguments = TrainingArguments(
        tempfile.mkdtemp(), per_device_train_batch_size=4, max_steps=40, save_strategy="no", report_to=[],
        disable_tqdm=True,
    )  # fmt: skip
    model = GPT2LMHeadModel(GPT2Config(vocab_size=1024, n_positions=64, n_embd=128, n_layer=4, n_head=2))
    LoggingTrainer(model, arguments, train_dataset=tokens).train()

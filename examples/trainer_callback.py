"""Hugging Face's Trainer with a table of predicted and measured peaks at its end.

dryfit run --gpu l4 -o predicted.json examples/trainer_callback.py
python examples/trainer_callback.py --predicted predicted.json

The second is for a real card. To see its table on a machine without one, give it a virtual card and let it end:
dryfit run --gpu l4 --steps all examples/trainer_callback.py --predicted predicted.json
"""

import argparse

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from dryfit.train import TransformersMemoryCallback


class RandomTokens(torch.utils.data.Dataset):
    def __init__(self, vocabulary: int, length: int, count: int) -> None:
        self.vocabulary, self.length, self.count = vocabulary, length, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(self.vocabulary, (self.length,))
        return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--predicted", help="what `dryfit run -o` has saved")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--output", default="trainer-callback-output")
    arguments = parser.parse_args()

    config = LlamaConfig(
        vocab_size=8000,
        hidden_size=arguments.width,
        intermediate_size=2 * arguments.width,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=8,
    )
    trainer = Trainer(
        model=LlamaForCausalLM(config),
        args=TrainingArguments(
            output_dir=arguments.output,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            max_steps=arguments.steps,
            eval_strategy="steps",
            eval_steps=2,
            save_strategy="no",
            prediction_loss_only=True,
            report_to=[],
        ),
        train_dataset=RandomTokens(config.vocab_size, 256, 1000),
        eval_dataset=RandomTokens(config.vocab_size, 256, 16),
        callbacks=[TransformersMemoryCallback(arguments.predicted)],
    )
    trainer.train()


if __name__ == "__main__":
    main()

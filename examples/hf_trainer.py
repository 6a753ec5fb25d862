"""Hugging Face Trainer on a small Llama built from its config: 8 layers, 1024 wide, batch 4 x 512 tokens.

dryfit run --gpu l4 examples/hf_trainer.py --bf16 --gradient-checkpointing
"""

import argparse

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


class RandomTokens(torch.utils.data.Dataset):
    def __init__(self, vocabulary: int, length: int) -> None:
        self.vocabulary, self.length = vocabulary, length

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(self.vocabulary, (self.length,))
        return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--gradient-checkpointing", action="store_true")
    parser.add_argument("--optim", default="adamw_torch")
    parser.add_argument("--lora", action="store_true")
    parser.add_argument("--output", default="hf-trainer-output")
    parser.add_argument("--save-steps", type=int, default=500)
    arguments = parser.parse_args()

    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=8,
        num_attention_heads=16,
        num_key_value_heads=16,
        max_position_embeddings=2048,
    )
    model = LlamaForCausalLM(config)
    if arguments.lora:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM"))
        if arguments.gradient_checkpointing:
            model.enable_input_require_grads()
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=arguments.output,
            per_device_train_batch_size=arguments.batch,
            bf16=arguments.bf16,
            gradient_checkpointing=arguments.gradient_checkpointing,
            optim=arguments.optim,
            max_steps=50,
            logging_steps=10,
            save_steps=arguments.save_steps,
            report_to=[],
        ),
        train_dataset=RandomTokens(config.vocab_size, arguments.length),
    )
    trainer.train()


if __name__ == "__main__":
    main()

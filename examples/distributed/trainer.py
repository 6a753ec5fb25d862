"""Hugging Face Trainer on many cards: a small Llama built from its config, by DDP, FSDP1 or FSDP2.

dryfit run --world 8 examples/distributed/trainer.py fsdp2 --accumulate 4
dryfit run --world 8 torchrun --nproc-per-node 8 examples/distributed/trainer.py ddp
"""

import argparse

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

VERSIONS = {"fsdp": 1, "fsdp2": 2}


class RandomTokens(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(4096, (256,))
        return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("strategy", choices=("ddp", *VERSIONS))
    parser.add_argument("--batch", type=int, default=2, help="of each card, in each micro-batch")
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--bf16", action="store_true")
    arguments = parser.parse_args()

    sharded = {}
    if arguments.strategy in VERSIONS:
        config = {"version": VERSIONS[arguments.strategy], "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]}
        sharded = {"fsdp": "full_shard auto_wrap", "fsdp_config": config}
    config = LlamaConfig(
        vocab_size=4096,
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=4,
        num_attention_heads=16,
        num_key_value_heads=16,
    )
    trainer = Trainer(
        model=LlamaForCausalLM(config),
        args=TrainingArguments(
            output_dir="trainer-output",
            per_device_train_batch_size=arguments.batch,
            gradient_accumulation_steps=arguments.accumulate,
            bf16=arguments.bf16,
            max_steps=30,
            report_to=[],
            **sharded,
        ),
        train_dataset=RandomTokens(),
    )
    trainer.train()


if __name__ == "__main__":
    main()

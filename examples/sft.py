"""TRL's SFTTrainer on a small Llama built from its config, with a tokenizer made here: no file is downloaded.

dryfit run --gpu l4 examples/sft.py [--lora]
"""

import sys

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

WORDS = ["<pad>", "<eos>", "<unk>", *(f"word{i}" for i in range(4000))]


def main() -> None:
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )
    texts = [" ".join(f"word{(17 * i + j) % 4000}" for j in range(200 + i % 50)) for i in range(200)]
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(WORDS),
            hidden_size=512,
            intermediate_size=1408,
            num_hidden_layers=8,
            num_attention_heads=8,
            num_key_value_heads=8,
        )
    )
    adapters = None
    if "--lora" in sys.argv:
        from peft import LoraConfig

        adapters = LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM")
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(output_dir="sft-output", per_device_train_batch_size=4, max_steps=30, bf16=True, report_to=[]),
        train_dataset=Dataset.from_dict({"text": texts}),
        processing_class=wrapped,
        peft_config=adapters,
    )
    trainer.train()


if __name__ == "__main__":
    main()

"""TRL's SFTTrainer on texts of different lengths, with a vocabulary made here."""

import random
import tempfile

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

words = ["<pad>", "<eos>", "<unk>"] + [f"w{number}" for number in range(997)]
tokens = Tokenizer(models.WordLevel({word: at for at, word in enumerate(words)}, unk_token="<unk>"))
tokens.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokens, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
random.seed(0)
texts = [" ".join(random.choices(words[3:], k=random.randrange(20, 60))) for _ in range(64)]
sizes = {"vocab_size": 1000, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2}
with tempfile.TemporaryDirectory() as folder:
    settings = SFTConfig(
        output_dir=folder,
        max_steps=3,
        per_device_train_batch_size=4,
        report_to=[],
        save_strategy="no",
        bf16=True,
        logging_steps=1,
        disable_tqdm=True,
    )
    trainer = SFTTrainer(
        model=LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=8)),
        args=settings,
        train_dataset=Dataset.from_dict({"text": texts}),
        processing_class=tokenizer,
    )
    trainer.train()
logged = [entry for entry in trainer.state.log_history if "num_tokens" in entry]
found = {
    "steps": trainer.state.global_step,
    "tokens": [int(entry["num_tokens"]) for entry in logged],
    "lengths": sorted(len(text.split()) + 1 for text in texts),
    "allocated": torch.cuda.max_memory_allocated(),
}

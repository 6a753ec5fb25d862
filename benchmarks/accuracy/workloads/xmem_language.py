"""The language models that the xMem paper trained on a card: `xmem_language.py gpt2 AdamW 27`.

Four steps of fp32 training on texts of `--tokens` tokens, with models of transformers made from configurations, which
are written out here. Weights are random. The published runs cut texts to 128 tokens and padded a batch to its
longest, so a small batch may have had fewer; here every batch has all. `--lean` makes the model on the card alone:
those of some billion parameters need much host memory otherwise.
"""

import argparse
import contextlib

import torch
import transformers
from transformers import Adafactor

GPT2 = {"vocab_size": 50257, "n_embd": 768, "n_head": 12}
NO_DROPOUT = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
# The class of the configuration and the hyper-parameters that the models' public configurations have.
MODELS = {
    "gpt2": ("GPT2Config", {**GPT2, "n_layer": 12}),
    "distilgpt2": ("GPT2Config", {**GPT2, "n_layer": 6}),
    "Cerebras-GPT-111M": (
        "GPT2Config",
        {
            **GPT2,
            **NO_DROPOUT,
            "n_layer": 10,
            "n_positions": 2048,
            "n_inner": 3072,
            "activation_function": "gelu",
        },
    ),
    "gpt-neo-125M": (
        "GPTNeoConfig",
        {
            "vocab_size": 50257,
            "hidden_size": 768,
            "num_layers": 12,
            "num_heads": 12,
            "max_position_embeddings": 2048,
            "attention_types": [[["global", "local"], 6]],
            "window_size": 256,
        },
    ),
    "opt-125m": (
        "OPTConfig",
        {
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "ffn_dim": 3072,
            "num_attention_heads": 12,
            "word_embed_proj_dim": 768,
            "vocab_size": 50272,
        },
    ),
    "opt-350m": (
        "OPTConfig",
        {
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "ffn_dim": 4096,
            "num_attention_heads": 16,
            "word_embed_proj_dim": 512,
            "do_layer_norm_before": False,
            "vocab_size": 50272,
        },
    ),
    "T5-small": (
        "T5Config",
        {
            "vocab_size": 32128,
            "d_model": 512,
            "d_kv": 64,
            "d_ff": 2048,
            "num_layers": 6,
            "num_heads": 8,
            "decoder_start_token_id": 0,
        },
    ),
    "t5-base": (
        "T5Config",
        {
            "vocab_size": 32128,
            "d_model": 768,
            "d_kv": 64,
            "d_ff": 3072,
            "num_layers": 12,
            "num_heads": 12,
            "decoder_start_token_id": 0,
        },
    ),
    "Qwen3-4B": (
        "Qwen3Config",
        {
            "vocab_size": 151936,
            "hidden_size": 2560,
            "intermediate_size": 9728,
            "num_hidden_layers": 36,
            "head_dim": 128,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "tie_word_embeddings": True,
            "max_position_embeddings": 40960,
        },
    ),
    "DeepSeek-R1-Distill-Qwen-1.5B": (
        "Qwen2Config",
        {
            "vocab_size": 151936,
            "hidden_size": 1536,
            "intermediate_size": 8960,
            "num_hidden_layers": 28,
            "num_attention_heads": 12,
            "num_key_value_heads": 2,
            "tie_word_embeddings": False,
        },
    ),
    "gemma-2-2b-it": (
        "Gemma2Config",
        {
            "vocab_size": 256000,
            "hidden_size": 2304,
            "intermediate_size": 9216,
            "num_hidden_layers": 26,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
        },
    ),
    "Llama-3.2-3B-Instruct": (
        "LlamaConfig",
        {
            "vocab_size": 128256,
            "hidden_size": 3072,
            "intermediate_size": 8192,
            "num_hidden_layers": 28,
            "num_attention_heads": 24,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "tie_word_embeddings": True,
            "max_position_embeddings": 131072,
        },
    ),
}


def language_model(name: str) -> torch.nn.Module:
    kind, values = MODELS[name]
    config = getattr(transformers, kind)(**values)
    config.torch_dtype = torch.float32
    of = transformers.AutoModelForSeq2SeqLM if config.model_type == "t5" else transformers.AutoModelForCausalLM
    return of.from_config(config)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("optimizer", choices=("Adafactor", "Adagrad", "Adam", "AdamW", "RMSprop", "SGD"))
    parser.add_argument("batch", type=int)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--lean", action="store_true")
    asked = parser.parse_args()
    device = torch.device("cuda:0")
    torch.cuda.set_per_process_memory_fraction(1.0, device=device)
    with torch.device("meta") if asked.lean else contextlib.nullcontext():
        model = language_model(asked.model)
    if asked.lean:
        model.to_empty(device=device).tie_weights()
    # The published runs made the optimizer before they moved the model.
    if asked.optimizer == "Adafactor":
        optimizer = Adafactor(model.parameters(), lr=0.001, relative_step=False)
    else:
        optimizer = getattr(torch.optim, asked.optimizer)(model.parameters(), lr=0.001)
    model.train().to(device)
    for _ in range(asked.steps):
        # As from a loader: the name holds the batch on the host first, which lets go of the last one on the card.
        tokens = torch.ones(asked.batch, asked.tokens, dtype=torch.long)
        batch = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": tokens.clone()}
        optimizer.zero_grad()
        batch = {name: each.to(device) for name, each in batch.items()}
        outputs = model(**batch)
        outputs.loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()

"""A model of Llama-70B's size, built from its config on the card, in bf16: forward, backward, AdamW.

dryfit run --gpu h100 --memory 2000GB examples/llama_70b.py
"""

import argparse

import torch
from transformers import LlamaConfig, LlamaForCausalLM

SIZES = {
    "1b": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32},
    "8b": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32},
    "70b": {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64},
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=SIZES, default="70b")
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--fused", action="store_true", help="fused AdamW: no temporary copies of the parameters")
    arguments = parser.parse_args()

    config = LlamaConfig(
        vocab_size=128256, num_key_value_heads=8, max_position_embeddings=8192, **SIZES[arguments.size]
    )
    config.dtype = torch.bfloat16
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=arguments.fused or None)

    for _ in range(arguments.steps):
        tokens = torch.randint(config.vocab_size, (1, arguments.length), device="cuda")
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()

"""Generation, whose end is decided on the card."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

sizes = {"vocab_size": 8000, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2}
with torch.device("cuda"):
    model = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=4))
ids = torch.randint(3, 8000, (2, 16), device="cuda")
ways = {"greedy": {"do_sample": False}, "sampled": {"do_sample": True, "top_p": 0.9}, "beams": {"num_beams": 2}}
found = {
    name: list(model.generate(ids, max_new_tokens=20, pad_token_id=0, **options).shape)
    for name, options in ways.items()
}

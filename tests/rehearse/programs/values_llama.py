"""A Hugging Face Llama step whose batch comes with an attention mask of ones."""

import sys
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

SIZES = {
    "8b": {
        "vocab_size": 128256,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
    "small": {
        "vocab_size": 8000,
        "hidden_size": 512,
        "intermediate_size": 1408,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
    },
}
BATCH = {"8b": (1, 4096), "small": (2, 1024)}
size = sys.argv[1]
torch.set_default_dtype(torch.bfloat16)
with torch.device("cuda"):
    model = LlamaForCausalLM(LlamaConfig(**SIZES[size]))
torch.set_default_dtype(torch.float32)
masks = []
attend = torch.nn.functional.scaled_dot_product_attention


def attention(*args, attn_mask=None, **kwargs):
    masks.append(attn_mask is not None)
    return attend(*args, attn_mask=attn_mask, **kwargs)


torch.nn.functional.scaled_dot_product_attention = attention
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
ids = torch.randint(0, 8000, BATCH[size], device="cuda")
seconds = []
for _ in range(4):
    started = time.perf_counter()
    mask = torch.ones_like(ids)
    model(input_ids=ids, attention_mask=None if "unmasked" in sys.argv else mask, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    seconds.append(time.perf_counter() - started)
found = {
    "explicit_mask": any(masks),
    "attentions": len(masks),
    "allocated": torch.cuda.max_memory_allocated(),
    "reserved": torch.cuda.max_memory_reserved(),
    "seconds": min(seconds),
}

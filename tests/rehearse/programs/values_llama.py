"""A Hugging Face Llama step whose batch comes with an attention mask of ones."""

import sys
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

NAMES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
SIZES = {"8b": (128256, 4096, 14336, 32, 32), "small": (8000, 512, 1408, 4, 8)}
KEY_VALUE_HEADS = {"8b": 8, "small": 8}
BATCH = {"8b": (1, 4096), "small": (2, 1024)}
size = sys.argv[1]
sizes = dict(zip(NAMES, SIZES[size], strict=True), num_key_value_heads=KEY_VALUE_HEADS[size])
torch.set_default_dtype(torch.bfloat16)
with torch.device("cuda"):
    model = LlamaForCausalLM(LlamaConfig(**sizes))
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

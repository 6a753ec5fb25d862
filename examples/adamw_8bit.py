"""GPT-2 sized Hugging Face model with bitsandbytes' 8-bit AdamW in a loop of one's own.

dryfit run --gpu t4 examples/adamw_8bit.py
"""

import bitsandbytes
import torch
from transformers import GPT2Config, GPT2LMHeadModel


def main() -> None:
    model = GPT2LMHeadModel(GPT2Config()).to("cuda")
    optimizer = bitsandbytes.optim.AdamW8bit(model.parameters(), lr=1e-4)
    for _ in range(50):
        tokens = torch.randint(50257, (4, 512)).to("cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()

"""Four steps of a language model in float32, where ties between free blocks decide: `of_language.py gpt2 35 [LAYERS]`.

The models are built from their public hyper-parameters; the loop is the plain one, its batches always full.
"""

import argparse

import torch
import transformers

LENGTH = 128


def model_of(name, layers):
    if name == "t5":
        config = transformers.T5Config(
            vocab_size=32128, d_model=512, d_kv=64, d_ff=2048, num_heads=8, num_layers=layers or 6,
            decoder_start_token_id=0,
        )  # fmt: skip
        return transformers.T5ForConditionalGeneration(config)
    depth = {"gpt2": 12, "distilgpt2": 6}[name]
    config = transformers.GPT2Config(vocab_size=50257, n_embd=768, n_head=12, n_layer=layers or depth)
    return transformers.GPT2LMHeadModel(config)


parser = argparse.ArgumentParser()
parser.add_argument("model", choices=("gpt2", "distilgpt2", "t5"))
parser.add_argument("batch", type=int)
parser.add_argument("--layers", type=int)
parser.add_argument("--steps", type=int, default=4)
arguments = parser.parse_args()

model = model_of(arguments.model, arguments.layers)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
model.train().to("cuda")
for _ in range(arguments.steps):
    optimizer.zero_grad()
    tokens = torch.ones(arguments.batch, LENGTH, dtype=torch.long)
    batch = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": tokens.clone()}
    outputs = model(**{name: tensor.to("cuda") for name, tensor in batch.items()})
    outputs.loss.backward()  # the logits stay until the next step has its own
    optimizer.step()

"""GPT-2 XL (1.56 B parameters) of transformers in float32 with AdamW, in a plain loop."""

from by_hand import arguments, train
from chunked_cross_entropy import write_into


def main():
    given = arguments(batch=4, layers=48, width=1600, heads=25, length=1024)
    import torch
    from transformers import AutoModelForCausalLM, GPT2Config

    config = GPT2Config(n_embd=given.width, n_layer=given.layers, n_head=given.heads)
    model = AutoModelForCausalLM.from_config(config, dtype=given.dtype).to("cuda")
    model.train()
    if given.has("chunked-cross-entropy"):
        write_into(model, int(given.measures["chunked-cross-entropy"]))

    def loss_of(tokens):
        return model(tokens, labels=tokens).loss

    def inputs(size):
        return torch.randint(config.vocab_size, (size, given.length), device="cuda")

    train(given, model, loss_of, inputs)

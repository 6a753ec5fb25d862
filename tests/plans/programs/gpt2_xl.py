"""GPT-2 XL (1.56 B parameters) of transformers in float32 with AdamW, in a plain loop."""

from by_hand import arguments, train


def main():
    given = arguments(batch=4)
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_embd=1600, n_layer=48, n_head=25)).to("cuda")
    model.train()

    def loss_of(tokens):
        return model(tokens, labels=tokens).loss

    train(given, model, model.transformer.h, loss_of, inputs=lambda size: given.tokens(50257, size, 1024))

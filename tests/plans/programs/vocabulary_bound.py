"""A small language model with a large vocabulary: what takes most are the logits."""

from by_hand import arguments, train
from chunked_cross_entropy import chunked_cross_entropy


def main():
    given = arguments(batch=24, layers=4, width=512, heads=8, length=512, vocabulary=151936)
    import torch
    from torch import nn
    from torch.nn import functional

    chunks = int(given.measures.get("chunked-cross-entropy", 0))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(given.vocabulary, given.width)
            self.layers = nn.ModuleList(
                nn.TransformerEncoderLayer(
                    given.width, given.heads, 4 * given.width, dropout=0.0, batch_first=True, norm_first=True
                )
                for _ in range(given.layers)
            )
            self.norm, self.head = nn.LayerNorm(given.width), nn.Linear(given.width, given.vocabulary, bias=False)

        def forward(self, tokens):
            x = self.embed(tokens)
            for layer in self.layers:
                x = layer(x)
            x = self.norm(x)
            return x if chunks else self.head(x)

    model = Model().to(given.dtype).cuda()

    def loss_of(tokens):
        if chunks:
            return chunked_cross_entropy(model(tokens[:, :-1]), model.head.weight, tokens[:, 1:], chunks=chunks)
        logits = model(tokens[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    def inputs(size):
        return torch.randint(given.vocabulary, (size, given.length + 1), device="cuda")

    train(given, model, loss_of, inputs, blocks=list(model.layers))

"""A small language model with a large vocabulary: what takes most are the logits."""

from by_hand import arguments, train


def main():
    given = arguments(batch=24)
    import torch
    from torch import nn
    from torch.nn import functional

    vocabulary, width, length = 151936, 512, 512

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(vocabulary, width)
            self.layers = nn.ModuleList(
                nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
                for _ in range(4)
            )
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

        def hidden(self, tokens):
            x = self.embed(tokens)
            for layer in self.layers:
                x = layer(x)
            return self.norm(x)

        def forward(self, tokens):
            return self.head(self.hidden(tokens))

    model = Model().cuda()

    def loss_of(tokens):
        logits = model(tokens[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    def inputs(size):
        return torch.randint(vocabulary, (size, length + 1), device="cuda")

    train(given, model, model.layers, loss_of, inputs)

"""Trains a small language model on texts of 20 to 1,024 tokens, each batch padded to its longest."""

import random

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader


def texts(count: int) -> list[torch.Tensor]:
    chance = random.Random(0)
    lengths = [min(1024, 20 + int(chance.expovariate(1 / 120))) for _ in range(count)]
    return [torch.randint(32_000, (length,)) for length in lengths]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(32_000, 512)
        layer = nn.TransformerEncoderLayer(512, 8, dim_feedforward=2048, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=6)
        self.head = nn.Linear(512, 32_000)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embedding(ids)))


def main() -> None:
    torch.manual_seed(0)
    pad = lambda rows: pad_sequence(rows, batch_first=True)  # noqa: E731
    loader = DataLoader(texts(20_000), batch_size=16, shuffle=True, collate_fn=pad)
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for ids in loader:
        ids = ids.cuda()
        logits = model(ids)
        nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()

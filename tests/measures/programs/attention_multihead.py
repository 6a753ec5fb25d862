"""A model of nn.MultiheadAttention that asks for weights, and may use them; without them by hand."""

import torch
from torch import nn

WIDTH, CONTEXT, BATCH = 128, 512, 4


class Block(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how = how
        self.norm, self.attention = nn.LayerNorm(WIDTH), nn.MultiheadAttention(WIDTH, 4, batch_first=True)

    def forward(self, x):
        normed = self.norm(x)
        if self.how == "without weights":
            attended, weights = self.attention(normed, normed, normed, None, False)
        else:
            attended, weights = self.attention(normed, normed, normed, None, True)
        if self.how == "uses weights":
            attended = attended + weights.mean()
        return x + attended


def main(how=""):
    model = nn.Sequential(*(Block(how) for _ in range(3))).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(BATCH, CONTEXT, WIDTH, device="cuda")).sum().backward()
        optimizer.step()

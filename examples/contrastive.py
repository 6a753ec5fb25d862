"""CLIP-like training with InfoNCE: every pair is compared with all others of the batch, in micro-batches.

The batch is 1024 pairs, and the graphs of 64 are alive at a time; `two_pass` gives the gradient of the whole batch.

python examples/contrastive.py
dryfit run --gpu l4 examples/contrastive.py
"""

import argparse

import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize

from dryfit.train import two_pass

SIZE, SHADES, WIDTH = 32, 16, 64


class ImageEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, kernel_size=16, stride=16)
        self.blocks = nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True), 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return normalize(self.blocks(self.patches(images).flatten(2).transpose(1, 2)).mean(1), dim=-1)


class TextEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(3 * SHADES, WIDTH)
        self.blocks = nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True), 1)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return normalize(self.blocks(self.words(words)).mean(1), dim=-1)


def pairs(count: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Noisy images of one colour, and texts of three words, one for the shade of each channel."""
    shades = torch.randint(SHADES, (count, 3), device=device)
    images = (shades / SHADES - 0.5)[:, :, None, None] + 0.1 * torch.randn(count, 3, SIZE, SIZE, device=device)
    return images, shades + SHADES * torch.arange(3, device=device)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--micro-batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    image, text = ImageEncoder().to(device), TextEncoder().to(device)
    scale = nn.Parameter(torch.tensor(2.0, device=device))
    optimizer = torch.optim.AdamW([*image.parameters(), *text.parameters(), scale], lr=1e-3)

    def info_nce(images: torch.Tensor, texts: torch.Tensor) -> torch.Tensor:
        scores, targets = scale.exp() * images @ texts.T, torch.arange(len(images), device=device)
        return (cross_entropy(scores, targets) + cross_entropy(scores.T, targets)) / 2

    for step in range(options.steps):
        optimizer.zero_grad()
        loss = two_pass([image, text], pairs(options.batch, device), info_nce, micro_batch=options.micro_batch)
        optimizer.step()
        if step % 10 == 0 or step == options.steps - 1:
            print(f"step {step}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()

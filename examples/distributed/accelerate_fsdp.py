"""A loop of one's own under Accelerate, sharded as accelerate_fsdp.yaml says; its vocabulary is not a multiple of 8.

dryfit run --world 8 --ranks 0,last \
    accelerate launch --config_file examples/distributed/accelerate_fsdp.yaml examples/distributed/accelerate_fsdp.py
"""

import torch
from accelerate import Accelerator
from torch import nn

VOCABULARY, LENGTH, WIDTH, BLOCKS, BATCH = 8190, 128, 1024, 8, 8


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.down(nn.functional.gelu(self.up(hidden)))


def main() -> None:
    accelerator = Accelerator(gradient_accumulation_steps=2)
    model = nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), *[Block() for _ in range(BLOCKS)])
    optimizer = torch.optim.AdamW(model.parameters())
    data = torch.utils.data.TensorDataset(torch.randint(VOCABULARY, (8192, LENGTH)))
    loader = torch.utils.data.DataLoader(data, batch_size=BATCH, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    for (tokens,) in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(tokens).square().mean())
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main()

"""Fine-tune DistilBERT as one rank of DeepSpeed's ZeRO-2, which Lightning Fabric sets up: Adam, mixed float16.

    dryfit run --world 4 distilbert_zero_step.py --batch 12

Some steps, then a validation batch without gradients. Attention is written out, as transformers had it in 2023. It
needs lightning, transformers and deepspeed.
"""

import argparse
import os

import torch
from lightning import Fabric
from torch.utils.data import DataLoader, Dataset
from transformers import DistilBertConfig, DistilBertForSequenceClassification

LENGTH = 512


class Reviews(Dataset):
    """All as long as the longest."""

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        words = torch.randint(30_522, (LENGTH,))
        return {"input_ids": words, "attention_mask": torch.ones_like(words), "label": torch.tensor(place % 2)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--steps", type=int, default=4)
    arguments = parser.parse_args()

    torch.set_float32_matmul_precision("high")
    ranks = int(os.environ["WORLD_SIZE"])
    fabric = Fabric(accelerator="cuda", devices=ranks, strategy="deepspeed_stage_2", precision="16-mixed")
    fabric.launch()
    model = DistilBertForSequenceClassification(DistilBertConfig(num_labels=2, attn_implementation="eager"))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-5)
    model, optimizer = fabric.setup(model, optimizer)
    loader = fabric.setup_dataloaders(DataLoader(Reviews(), batch_size=arguments.batch, shuffle=True, drop_last=True))

    batches = iter(loader)
    for _ in range(arguments.steps):
        batch = next(batches)
        model.train()
        outputs = model(batch["input_ids"], attention_mask=batch["attention_mask"], labels=batch["label"])
        optimizer.zero_grad()
        fabric.backward(outputs["loss"])
        optimizer.step()
        model.eval()
        with torch.no_grad():
            torch.argmax(outputs["logits"], 1)
    batch = next(batches)
    with torch.no_grad():
        outputs = model(batch["input_ids"], attention_mask=batch["attention_mask"], labels=batch["label"])
        torch.argmax(outputs["logits"], 1)


if __name__ == "__main__":
    main()

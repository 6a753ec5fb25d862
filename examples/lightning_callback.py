"""Lightning's Trainer with a table of predicted and measured peaks at its end.

dryfit run --gpu l4 -o predicted.json examples/lightning_callback.py
python examples/lightning_callback.py --predicted predicted.json

The second is for a real card. To see its table on a machine without one, give it a virtual card and let it end:
dryfit run --gpu l4 --steps all examples/lightning_callback.py --predicted predicted.json
"""

import argparse

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dryfit.train import LightningMemoryCallback


class Classifier(lightning.LightningModule):
    def __init__(self, width: int) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        inputs, labels = batch
        return nn.functional.cross_entropy(self.head(self.encoder(inputs).mean(1)), labels)

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        self.log("loss", self.training_step(batch, index))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--predicted", help="what `dryfit run -o` has saved")
    parser.add_argument("--width", type=int, default=256)
    arguments = parser.parse_args()

    data = TensorDataset(torch.randn(64, 128, arguments.width), torch.randint(10, (64,)))
    trainer = lightning.Trainer(
        max_epochs=2,
        accumulate_grad_batches=2,
        enable_progress_bar=False,
        enable_checkpointing=False,
        logger=False,
        callbacks=[LightningMemoryCallback(arguments.predicted)],
    )
    trainer.fit(Classifier(arguments.width), DataLoader(data, batch_size=8), DataLoader(data, batch_size=16))


if __name__ == "__main__":
    main()

"""Lightning's Trainer: a small Transformer encoder, bf16 mixed precision, gradients accumulated over two batches.

dryfit run --gpu t4 examples/lightning_trainer.py
"""

import lightning
import torch
from torch import nn


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        self.head = nn.Linear(512, 10)

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        inputs, labels = batch
        loss = nn.functional.cross_entropy(self.head(self.encoder(inputs).mean(1)), labels)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


def main() -> None:
    data = torch.utils.data.TensorDataset(torch.randn(256, 128, 512), torch.randint(10, (256,)))
    loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True)
    trainer = lightning.Trainer(
        max_epochs=4, precision="bf16-mixed", accumulate_grad_batches=2, enable_progress_bar=False
    )
    trainer.fit(Classifier(), loader)


if __name__ == "__main__":
    main()

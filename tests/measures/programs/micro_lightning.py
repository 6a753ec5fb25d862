"""Lightning's Trainer with a small language model, in batches of 16: as many micro-batches as the argument says."""

import lightning
import torch
from language_model import CONTEXT, VOCABULARY, Model, loss_of
from torch.utils.data import DataLoader, TensorDataset


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = Model()

    def training_step(self, batch):
        return loss_of(self.model, batch[0])

    def validation_step(self, batch):
        self.log("loss", loss_of(self.model, batch[0]))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main(count="1"):
    tokens = TensorDataset(torch.randint(VOCABULARY, (64, CONTEXT + 1)))
    loader, others = DataLoader(tokens, batch_size=16 // int(count), shuffle=True), DataLoader(tokens, batch_size=16)
    trainer = lightning.Trainer(
        accelerator="gpu",
        devices=1,
        max_epochs=1,
        accumulate_grad_batches=int(count),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(Module(), loader, others)

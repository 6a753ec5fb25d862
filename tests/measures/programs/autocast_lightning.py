"""`language_model` trained by Lightning; its Trainer may be given more settings, as JSON."""

import json

import lightning
import torch
from language_model import BATCH, CONTEXT, VOCABULARY, Model, loss_of


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = Model()

    def training_step(self, batch, _):
        return loss_of(self.model, batch)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main(settings="{}"):
    trainer = lightning.Trainer(
        accelerator="gpu",
        devices=1,
        max_steps=4,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        **json.loads(settings),
    )
    trainer.fit(Module(), torch.utils.data.DataLoader(torch.randint(VOCABULARY, (64, CONTEXT + 1)), BATCH))

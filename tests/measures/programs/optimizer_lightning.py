"""`language_model` trained by Lightning; its optimizer is chosen by name, and gradients may be freed by hand."""

import lightning
import torch
from language_model import BATCH, CONTEXT, VOCABULARY, Model, loss_of
from optimizer_closure import made


class Module(lightning.LightningModule):
    def __init__(self, which):
        super().__init__()
        self.model, self.which = Model(), which

    def training_step(self, batch, _):
        return loss_of(self.model, batch)

    def configure_optimizers(self):
        return made(self.which, self.parameters())


class Frees(Module):
    def training_step(self, batch, batch_idx):
        if batch_idx % self.trainer.accumulate_grad_batches == 0:
            self.optimizers().zero_grad()
        return super().training_step(batch, batch_idx)


def main(which="plain", frees="", accumulate="1"):
    trainer = lightning.Trainer(
        accelerator="gpu",
        devices=1,
        max_steps=4,
        accumulate_grad_batches=int(accumulate),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    data = torch.utils.data.DataLoader(torch.randint(VOCABULARY, (256, CONTEXT + 1)), BATCH)
    trainer.fit((Frees if frees else Module)(which), data)

"""A LightningModule that trains and validates as the documentation says, with values that it logs."""

import lightning
import torch
from parts import BATCH, CLASSES, WIDTH, classifier
from torch.nn import functional


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = classifier()

    def training_step(self, batch, _):
        inputs, targets = batch
        loss = functional.cross_entropy(self.model(inputs), targets)
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch, _):
        inputs, targets = batch
        self.log("validation_loss", functional.cross_entropy(self.model(inputs), targets))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


def loader(count):
    data = torch.utils.data.TensorDataset(torch.randn(count * BATCH, WIDTH), torch.randint(CLASSES, (count * BATCH,)))
    return torch.utils.data.DataLoader(data, BATCH)


if __name__ == "__main__":
    trainer = lightning.Trainer(
        accelerator="gpu", devices=1, max_epochs=6, logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    trainer.fit(Module(), loader(3), loader(3))

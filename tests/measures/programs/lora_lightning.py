"""Lightning's Trainer with a small language model; with LoRA written by hand, if asked to."""

import lightning
import peft
import torch
from language_model import CONTEXT, VOCABULARY, Model, loss_of
from torch.utils.data import DataLoader, TensorDataset


class Module(lightning.LightningModule):
    def __init__(self, adapted):
        super().__init__()
        self.model = Model()
        if adapted:
            layers = ["qkv", "out", "up", "down"]
            config = peft.LoraConfig(r=16, lora_alpha=32, target_modules=layers)
            self.model = peft.get_peft_model(self.model, config)

    def training_step(self, batch):
        return loss_of(self.model, batch[0])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main(adapted=""):
    tokens = TensorDataset(torch.randint(VOCABULARY, (64, CONTEXT + 1)))
    trainer = lightning.Trainer(
        accelerator="gpu",
        devices=1,
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(Module(bool(adapted)), DataLoader(tokens, batch_size=8))

import lightning.pytorch as pl
import torch
from torch.cuda import empty_cache


def plain(model, loader, optimizer):
    for x in loader:
        loss = model(x).mean()
        loss.backward()
        optimizer.step()
        torch.cuda.empty_cache()  # <- DF403


def under_a_card(model, loader, optimizer):
    for x in loader:
        if torch.cuda.is_available():
            empty_cache()  # <- DF403
        model(x).mean().backward()
        optimizer.step()


class Trainer:
    def step(self, x):
        self.model(x).mean().backward()
        self.optimizer.step()

    def fit(self, loader):
        for x in loader:
            self.step(x)
            torch.cuda.empty_cache()  # <- DF403


class Module(pl.LightningModule):
    def training_step(self, batch, batch_idx):
        torch.cuda.empty_cache()  # <- DF403
        return self(batch).mean()

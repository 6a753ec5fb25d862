import lightning as L
import torch.nn.functional as F
from transformers import Trainer


class Classifier(L.LightningModule):
    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.total_loss += loss  # <- DF101
        self.losses.append(loss)  # <- DF102
        return loss


class Returning(L.LightningModule):
    def training_step(self, batch, batch_idx):
        loss = F.cross_entropy(self(batch[0]), batch[1])
        self.outputs.append(loss)  # <- DF102
        return {"loss": loss}


class Summing(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs)
        loss = outputs.loss
        self.loss_so_far += loss  # <- DF101
        return (loss, outputs) if return_outputs else loss

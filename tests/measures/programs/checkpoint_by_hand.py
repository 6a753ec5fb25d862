"""`language_model` with its blocks checkpointed, written by hand: all, every second one, or all but matrix products."""

import functools

import torch
from language_model import BATCH, Model, train
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

aten = torch.ops.aten
KEPT = [
    aten.mm.default,
    aten.addmm.default,
    aten.bmm.default,
    aten.convolution.default,
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_cudnn_attention.default,
]
KEEP = functools.partial(create_selective_checkpoint_contexts, KEPT)


class Checkpointed(Model):
    every, settings = 1, {}

    def forward(self, tokens):
        x = self.embed(tokens) + self.place.weight[: tokens.shape[1]]
        for number, block in enumerate(self.blocks):
            if self.training and number % self.every == 0:
                x = checkpoint(block, x, use_reentrant=False, **self.settings)
            else:
                x = block(x)
        return self.head(self.norm(x))


def main(which="all", batch=BATCH):
    model = Checkpointed().cuda()
    if which == "every second":
        model.every = 2
    if which == "selective":
        model.settings = {"context_fn": KEEP}
    train(model, torch.optim.AdamW(model.parameters(), lr=1e-3), int(batch))

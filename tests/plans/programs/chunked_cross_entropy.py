"""The loss in chunks as the measure's snippet says it, which it is a copy of."""

import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


def loss_of_chunk(hidden, weight, targets):
    return F.cross_entropy(F.linear(hidden, weight).float(), targets, reduction="sum")


def chunked_cross_entropy(hidden, weight, targets, count=None, chunks=8):
    hidden, targets = hidden.flatten(0, -2), targets.flatten()
    parts = zip(hidden.chunk(chunks), targets.chunk(chunks), strict=True)
    total = sum(checkpoint(loss_of_chunk, h, weight, t, use_reentrant=False) for h, t in parts)
    return total / ((targets != -100).sum() if count is None else count)


def write_into(model, chunks):
    """The snippet for a model of transformers."""

    def loss_function(logits, labels, num_items_in_batch=None, **_):  # logits: what the head gave
        targets = F.pad(labels, (0, 1), value=-100)[..., 1:]
        weight = model.get_output_embeddings().weight
        return chunked_cross_entropy(logits, weight, targets, num_items_in_batch, chunks)

    model.get_output_embeddings().forward = lambda hidden: hidden  # the loss does it
    model.loss_function = loss_function

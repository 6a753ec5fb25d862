"""Cross-entropy in chunks: the logits of the whole batch never exist at once."""

from __future__ import annotations

from collections.abc import Sequence

from dryfit.measures.facts import Facts
from dryfit.measures.measure import Measure, changes_nothing
from dryfit.measures.moments import Moments
from dryfit.units import format_bytes

# With 8 the logits and what is kept of them are an eighth, and the gradient of the head's weight, of which two exist at
# a time, is often more; a chunk of 1024 positions, as of 8 sequences of 1024, still fills a card. More chunks take less
# where batch and vocabulary are both large, at the price of smaller matrix multiplications.
_CHUNKS = ("8", "32")
# Less is not worth an eighth of it: a classifier's 1000 classes for a batch of 256 are 1 MiB.
_WORTH_BYTES = 16 * 2**20


def _why_not(facts: Facts) -> str:
    if not facts.cross_entropy_classes:
        return "no cross-entropy was seen"
    if not facts.cross_entropy_from_linear:
        return "the logits of the program's cross-entropy are not what a linear layer returned"
    if facts.cross_entropy_bytes < _WORTH_BYTES:
        return f"the logits are small ({format_bytes(facts.cross_entropy_bytes)})"
    if any(model.is_compiled for model in facts.models):
        return "torch.compile has compiled the head into the model"
    if any(model.is_distributed.startswith("FSDP") for model in facts.models):
        return "FSDP has the head's weight whole within the model's forward pass alone"
    return ""


def _options(_: Facts) -> Sequence[str]:
    return _CHUNKS


def _switch_on(moments: Moments, option: str) -> None:
    import torch

    from dryfit.measures.lazy_logits import Heads, lazy_linear

    heads = Heads(chunks=int(option or _CHUNKS[0]), acts=moments.acts, guard=moments.guard)
    torch.nn.functional.linear = lazy_linear(heads)


_LOSS = """
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


def loss_of_chunk(hidden, weight, targets):
    return F.cross_entropy(F.linear(hidden, weight).float(), targets, reduction="sum")


def chunked_cross_entropy(hidden, weight, targets, count=None, chunks={option}):
    hidden, targets = hidden.flatten(0, -2), targets.flatten()
    parts = zip(hidden.chunk(chunks), targets.chunk(chunks), strict=True)
    total = sum(checkpoint(loss_of_chunk, h, weight, t, use_reentrant=False) for h, t in parts)
    return total / ((targets != -100).sum() if count is None else count)
"""

_OF_MODEL = """

hidden = model(batch)  # which returns what it gave its head before
loss = chunked_cross_entropy(hidden, model.head.weight, targets)
# where the head has a bias, F.linear takes it too
"""

_OF_TRANSFORMERS = """

def loss_function(logits, labels, num_items_in_batch=None, **_):  # logits: what the head gave
    targets = F.pad(labels, (0, 1), value=-100)[..., 1:]
    return chunked_cross_entropy(logits, model.get_output_embeddings().weight, targets, num_items_in_batch)


model.get_output_embeddings().forward = lambda hidden: hidden  # the loss does it
model.loss_function = loss_function
# or, with the package liger-kernel: TrainingArguments(..., use_liger_kernel=True)
# where peft has wrapped the model, all of this is of model.get_base_model()
"""

MEASURES = (
    Measure(
        name="chunked-cross-entropy",
        title="cross-entropy in chunks",
        what="The loss is computed for a part of the positions at a time, and its logits again in the backward pass: "
        "the logits of the whole batch never exist at once.",
        group="cross-entropy",
        why_not=_why_not,
        changes=changes_nothing,
        options=_options,
        switch_on=_switch_on,
        not_counted="Each chunk adds its part to the gradient of the head's weight, which takes a pass over it.",
        without=frozenset({"torch-compile", "fsdp"}),  # for the reasons in `_why_not`
        snippets={
            "pytorch": _LOSS + _OF_MODEL,
            "transformers model": _LOSS + _OF_TRANSFORMERS,
            "transformers": _LOSS + _OF_TRANSFORMERS,
        },
    ),
)

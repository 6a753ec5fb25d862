"""A small language model with unequal counts of tokens, and how gradients are compared in this room's tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

WORDS, CONTEXT = 17, 11
Batch = dict[str, torch.Tensor]
Gradients = list[torch.Tensor]


def language_model(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Embedding(WORDS, 8), nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, WORDS))


def batch_of(tokens: int, rows: int = 10, seed: int = 0) -> Batch:
    """A micro-batch of whose labels `tokens` are to be learnt and the others ignored."""
    torch.manual_seed(1000 * seed + tokens)
    labels = torch.randint(WORDS, (rows, CONTEXT))
    labels.view(-1)[tokens:] = -100
    return {"words": torch.randint(WORDS, (rows, CONTEXT)), "labels": labels}


def batches_of(*tokens: int) -> list[Batch]:
    return [batch_of(count, seed=seed) for seed, count in enumerate(tokens)]


def count_tokens(batch: Batch) -> int:
    return int((batch["labels"] != -100).sum())


def loss_of(model: nn.Module, batch: Batch) -> torch.Tensor:
    """The mean over the tokens that are not ignored, as transformers has it."""
    return cross_entropy(model(batch["words"]).flatten(0, 1), batch["labels"].flatten())


def summed_loss_of(model: nn.Module, batch: Batch) -> torch.Tensor:
    return cross_entropy(model(batch["words"]).flatten(0, 1), batch["labels"].flatten(), reduction="sum")


def joined(batches: Sequence[Batch]) -> Batch:
    return {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}


def gradients_of(model: nn.Module) -> Gradients:
    return [parameter.grad.detach().clone() for parameter in model.parameters() if parameter.grad is not None]


def whole_gradients(batches: Sequence[Batch], clip_norm: float | None = None) -> Gradients:
    """What one batch of all of them gives."""
    model = language_model()
    loss_of(model, joined(batches)).backward()
    if clip_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
    return gradients_of(model)


def difference(found: Gradients, expected: Gradients) -> float:
    """The largest difference in any parameter, relative to that parameter's largest gradient."""
    assert len(found) == len(expected)
    return max(float((one - other).abs().max() / other.abs().max()) for one, other in zip(found, expected, strict=True))


class Steps:
    """The gradients that an optimizer was stepped with, one entry per step."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        whole: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self.gradients: list[Gradients] = []
        self._whole = whole
        optimizer.register_step_pre_hook(self._note)

    def _note(self, optimizer: torch.optim.Optimizer, _: object, __: object) -> None:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        with self._whole():
            self.gradients.append([each.grad.detach().clone() for each in parameters if each.grad is not None])

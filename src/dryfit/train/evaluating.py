"""Evaluation that keeps no graph, and leaves the model as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from dryfit.train.synchronising import find_wrappers


@contextmanager
def evaluation(*models: nn.Module, inference: bool = True) -> Iterator[None]:
    """Put models into evaluation mode and keep no activations; then give each submodule the mode that it had.

        with evaluation(model):
            for batch in validation_loader:
                correct += (model(batch["inputs"]).argmax(-1) == batch["labels"]).sum().item()

    A backbone that was frozen in evaluation mode is so afterwards, and a dropout that trained trains again, also where
    the block is left by an exception. Blocks may lie within each other.

    The block runs under `torch.inference_mode()`. Tensors made there can never take part in a graph: where an output
    is trained on later, or the model is loaded or wrapped inside the block, ask for `torch.no_grad()` with
    `inference=False`. FSDP models get that without asking, as they keep the parameters that they gather. Tensors that
    a module makes for itself inside, such as a rotary cache, are made fit for training when the block ends.

    In a generator function the modes last while it is suspended, so for the caller's code too: give results after the
    block, not from within it.
    """
    inference = inference and not find_wrappers(models).sharded
    modes = [(module, module.training) for model in models for module in model.modules()]
    try:
        for model in models:
            model.eval()
        with torch.inference_mode() if inference else torch.no_grad():
            yield
    finally:
        # Older versions of PyTorch would use casts of weights that were made here, without a graph, in the training
        # that goes on in the same autocast region: pytorch/pytorch#158232.
        torch.clear_autocast_cache()
        _restore(modes)
        if inference:
            _make_fit_for_training(models)


def _restore(modes: list[tuple[nn.Module, bool]]) -> None:
    for module, training in modes:  # from each module to its children, so that what train() sets in them is put right
        if module.training != training:
            module.train(training)  # which modules override, as to take LoRA out of their weights again
    for module, training in modes:
        module.training = training


def _make_fit_for_training(models: tuple[nn.Module, ...]) -> None:
    """Replace tensors that inference mode has made and modules have kept."""
    for module in (module for model in models for module in model.modules()):
        for name, value in [*module.named_buffers(recurse=False), *vars(module).items()]:
            if isinstance(value, torch.Tensor) and value.is_inference():
                setattr(module, name, value.clone())

"""What a trial pass over a model would change: kept before, and put back bit for bit."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable

import torch
from torch import nn

from dryfit.train.random_states import read_random_states


class KeptState:
    """A model's buffers, gradients and modes, and the states of the random number generators.

    Parameters are not kept, as no trial steps an optimizer; nor is what a module keeps in attributes of its own.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._modes = [(module, module.training) for module in model.modules()]
        self._buffers = [
            (module, name, buffer, buffer.detach().clone())
            for module in model.modules()
            for name, buffer in module.named_buffers(recurse=False)
        ]
        self._gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
        tensors = [*model.parameters(), *model.buffers()]
        self._randomness = read_random_states({each.device.index for each in tensors if each.device.type == "cuda"})

    def rewind(self) -> None:
        """Put buffers and generators back to where they were, and free gradients, for another trial."""
        self.rewind_buffers()
        self._randomness.write()
        for parameter in self._model.parameters():
            parameter.grad = None

    def rewind_buffers(self) -> None:
        """Put buffers back to where they were."""
        kept = {(module, name) for module, name, _, _ in self._buffers}
        with torch.no_grad():
            for module, name, buffer, value in self._buffers:
                buffer.copy_(value)
                if getattr(module, name) is not buffer:
                    setattr(module, name, buffer)
        for module in self._model.modules():
            for name, _ in [*module.named_buffers(recurse=False)]:
                if (module, name) not in kept:  # one that the trial has filled for the first time
                    setattr(module, name, None)

    def restore(self) -> None:
        """Put back everything."""
        self.rewind()
        for module, training in self._modes:
            module.training = training
        for parameter, gradient in self._gradients:
            parameter.grad = gradient

    def reseed(self) -> None:
        """Draw other random numbers than before; `rewind` and `restore` undo it."""
        seed = (torch.initial_seed() + 1) % 2**32
        torch.manual_seed(seed)
        random.seed(seed)
        if numpy := sys.modules.get("numpy"):
            numpy.random.seed(seed)


def set_modes(modules: Iterable[nn.Module], *, training: bool) -> None:
    """Set these modules' modes, and not their children's as `train()` does."""
    for module in modules:
        module.training = training

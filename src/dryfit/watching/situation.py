"""What all kinds of findings look at: the models, where they live, what autograd was asked to do, and since when."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from dryfit.findings import Place
from dryfit.watching.frames import program_place
from dryfit.watching.torch_private import next_sequence_number


class Situation:
    """Kept up to date by the observer before any kind is told; it keeps nothing of the program's alive.

    `step` is that of the last step that is over. `step_mark` is autograd's sequence number as the step at hand began.
    `retains` and `creates` are the lines that last asked backward to keep its graph, or to make one of the gradients,
    in this step or the one before. `backwards` counts passes in all. `has_named_growth` says that what grows has a
    holder, be it one that is meant to grow.
    """

    def __init__(self) -> None:
        self.step = 0
        self.step_mark = self.mark_before = next_sequence_number()
        self.backwards = 0
        self.backwards_in_step = 0
        self.home: set[str] = set()
        self.has_named_growth = False
        self.retains: Place | None = None
        self.creates: Place | None = None
        self._asked_in = 0
        self._threads: set[int] = set()
        self._models: dict[int, weakref.ref[Any]] = {}

    def model_called(self, module: Any) -> None:
        """Remember a model, and where its parameters are."""
        if torch.is_grad_enabled() and not getattr(module, "_is_replica", False):  # DataParallel's: one loop's
            self._threads.add(threading.get_ident())
        number = id(module)
        if number in self._models:
            return
        self._models[number] = weakref.ref(module, lambda _: self._models.pop(number, None))
        devices = {str(each.device) for each in _first_parameters(module)}
        self.home |= devices
        away = {device for device in self.home if device != "cpu"}
        self.home = away or self.home  # with a model on a card, what lies on the host was moved there on purpose

    def backward_begins(self, retain_graph: bool | None, create_graph: bool) -> None:
        """Note who asks for the graph to be kept."""
        self.backwards += 1
        self.backwards_in_step += 1
        if retain_graph or create_graph:
            place = program_place()
            self._asked_in = self.step
            self.creates = place if create_graph else self.creates
            self.retains = self.retains if create_graph else place

    def step_is_over(self, step: int) -> None:
        """Begin the next step."""
        self.step = step
        self.backwards_in_step = 0
        self.mark_before, self.step_mark = self.step_mark, next_sequence_number()
        if self._asked_in < step - 2:
            self.retains = self.creates = None

    @property
    def has_several_threads(self) -> bool:
        """Whether more than one thread trains: then no look at all objects is to be taken.

        What one thread has listed another may let go of. With PyTorch 2.6.0 a tensor of which C++ kept the Python
        object then stands for nothing, and torch warns of it.
        """
        return len(self._threads) > 1

    def models(self) -> Iterator[Any]:
        """The models that were called and still live."""
        for reference in list(self._models.values()):
            model = reference()
            if model is not None:
                yield model

    def is_on_card(self) -> bool:
        """Whether the models are on a device that is not the host."""
        return bool(self.home) and "cpu" not in self.home


def _first_parameters(module: Any) -> list[torch.Tensor]:
    """A parameter or buffer of each device, of the first few: models that are spread over cards begin on one."""
    if not isinstance(module, torch.nn.Module):
        return []
    found: list[torch.Tensor] = list(itertools.islice(module.parameters(), 64))
    return found or list(itertools.islice(module.buffers(), 1))

"""Cheap signs that something is kept from step to step, by which to choose the steps after which to look closely.

A look at all objects takes longer than many a step. Two signs can be had for microseconds: the allocators hold more
than one step ago, or the graph of a step before the last one still lives. The latter is told by an object that is put
into the metadata of the graph's last node, which autograd keeps as long as the node.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from dryfit.watching.device_memory import allocated_bytes

_ALWAYS = (2, 3)
"""After its first step a program has its optimizer's states; a second look tells what has stayed."""
_EACH_UNTIL, _THEN_EACH = 8, 3
_MOST_PROBES = 64


class _Probe:
    __slots__ = ("__weakref__",)


class Signs:
    """Says after which steps to take a census; told of each step's graphs, and of its end before the observer is.

    signs = Signs()
    observer = Observer(may_take_census=signs.may_take_census)
    ...
    signs.graph_of(output), signs.step_is_over(), observer.step_is_over(7)
    """

    def __init__(self) -> None:
        self.something_stays = False
        self._of_step: list[weakref.ref[_Probe]] = []
        self._of_last_step: list[weakref.ref[_Probe]] = []
        self._allocated_bytes: int | None = None

    def graph_of(self, value: Any) -> None:
        """A model has given this, or a backward pass begins with it: tensors, or a few of them together."""
        if isinstance(value, dict):
            value = tuple(value.values())
        for each in value if isinstance(value, (tuple, list)) else (value,):
            node: Any = each.grad_fn if isinstance(each, torch.Tensor) else None
            if node is not None and len(self._of_step) < _MOST_PROBES:
                probe = _Probe()
                node.metadata["dryfit"] = probe
                self._of_step.append(weakref.ref(probe))

    def step_is_over(self) -> None:
        """Compare with one step ago; what the last step has made may still be in use."""
        now = allocated_bytes()
        before = now if self._allocated_bytes is None else self._allocated_bytes
        self.something_stays = now > before or any(each() is not None for each in self._of_last_step)
        self._allocated_bytes = now
        self._of_last_step, self._of_step = self._of_step, []

    def may_take_census(self, step: int) -> bool:
        """Whether to look at all objects after this step."""
        return step in _ALWAYS or (self.something_stays and (step <= _EACH_UNTIL or step % _THEN_EACH == 0))

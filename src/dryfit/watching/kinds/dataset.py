"""A dataset that lies on the card as a whole, while each step needs a batch of it: DF111."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch

from dryfit.findings import Evidence, Finding
from dryfit.units import format_bytes
from dryfit.watching.census import Census, Storage, storage_of
from dryfit.watching.held import holders_of
from dryfit.watching.kinds.kind import Kind
from dryfit.watching.situation import Situation

_TIMES_A_BATCH = 8
_LEAST_BYTES = 8 << 20
_STEPS = 2
_MOST_LOOKED_AT = 96

_Sort = tuple[str, torch.dtype, tuple[int, ...]]
"""What a dataset's samples have in common with a batch: the device, the type, and the shape of one."""


class Dataset(Kind):
    """Compares what lies on the card from the first step on with what the models are called with."""

    def __init__(self, situation: Situation) -> None:
        super().__init__(situation)
        self._batches: dict[_Sort, int] = {}
        self._first: list[weakref.ref[Any]] | None = None  # not by `id`, which a later step's may have again
        self._steps = 0

    def model_called(self, module: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        if self._steps > _STEPS:
            return
        for value in (*args, *kwargs.values()):
            if isinstance(value, torch.Tensor) and value.device.type != "cpu" and value.dim() >= 1:
                sort = _sort_of(value)
                self._batches[sort] = max(self._batches.get(sort, 0), value.nbytes)

    def step_is_over(self, step: int, census: Census | None) -> None:
        if census is None or self._steps > _STEPS:
            return
        self._steps += 1
        alike = [each for each in census.tensors if self._is_of_a_dataset(each)]
        if self._first is None:
            self._first = [weakref.ref(each) for each in alike]
            return
        if self._steps == _STEPS:
            stayed = {id(each) for reference in self._first if (each := reference()) is not None}
            self._tell([each for each in alike if id(each) in stayed])

    def _is_of_a_dataset(self, tensor: Any) -> bool:
        return (
            tensor.dim() >= 1
            and tensor.is_leaf
            and not isinstance(tensor, torch.nn.Parameter)
            and _sort_of(tensor) in self._batches
        )

    def _tell(self, tensors: list[Any]) -> None:
        """Tell of the holders that have many batches' worth of what looks like samples."""
        stored: dict[Storage, Any] = {}
        for tensor in sorted(
            tensors, key=lambda each: int(each.numel())
        ):  # of those of one storage the whole, not a slice
            storage = storage_of(tensor)
            if storage is not None:
                stored[storage] = tensor
        largest = sorted(stored, key=lambda each: each.size_bytes, reverse=True)[:_MOST_LOOKED_AT]
        if sum(each.size_bytes for each in stored) < _LEAST_BYTES or not largest:
            return
        for held in holders_of([stored[each] for each in largest]):
            is_anothers = any(map(_has_buffers_of_its_own, held.classes))
            if held.has_room_for_so_many or held.naming is None or held.in_error or is_anothers:
                continue
            own = [largest[number] for number in held.of]
            size_bytes = sum(each.size_bytes for each in own)
            if len(largest) == _MOST_LOOKED_AT and len(own) > _MOST_LOOKED_AT // 2:  # a list of batches, all alike
                size_bytes = size_bytes * len(stored) // len(largest)
            batch_bytes = max(self._batches[_sort_of(stored[own[0]])], 1)
            if size_bytes < max(_LEAST_BYTES, _TIMES_A_BATCH * batch_bytes):
                continue
            self.found.append(
                Finding(
                    code="DF111",
                    claim=f"{held.name} has the whole dataset on the card, {format_bytes(size_bytes)} at all steps; "
                    f"a step is called with {format_bytes(batch_bytes)} of it.",
                    advice="Keep the dataset on the host and move each batch where it is used: a DataLoader with "
                    "pin_memory=True, and batch.to(device, non_blocking=True). Where the card has the room to spare it "
                    "may stay.",
                    place=held.place,
                    evidence=Evidence(
                        size_bytes=size_bytes,
                        holder=held.name,
                        chain=held.chain,
                        numbers={"batch_bytes": batch_bytes},
                    ),
                )
            )


def _has_buffers_of_its_own(kind: type) -> bool:
    """Whether what such an object has of a batch's shape is no dataset: an optimizer's or a model's is states and
    buffers, a pipeline stage's is what it receives into."""
    return issubclass(kind, (torch.optim.Optimizer, torch.nn.Module)) or kind.__module__.startswith(
        "torch.distributed."
    )


def _sort_of(tensor: Any) -> _Sort:
    return str(tensor.device), tensor.dtype, tuple(tensor.shape[1:])

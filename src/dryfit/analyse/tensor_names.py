"""What is known of an allocation's tensor, and which module it belongs to, from labels and modules' outputs."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence

from dryfit.recording.model import OPTIMIZER_STATE, OWNERS, PARAMETER, Label, ModuleOutput
from dryfit.recording.replay import BEFORE, Lifetimes

_RANKS = {owner: place for place, owner in enumerate(OWNERS)}
_NAMED_BY_PARAMETERS = (PARAMETER, "gradient", "buffer", OPTIMIZER_STATE, "autocast weight copy")
_BITS = {
    "float64": 64, "complex64": 64, "int64": 64, "uint64": 64, "complex128": 128, "float32": 32, "int32": 32,
    "uint32": 32, "float16": 16, "bfloat16": 16, "int16": 16, "uint16": 16, "int8": 8, "uint8": 8, "bool": 8,
    "float8_e4m3fn": 8, "float8_e5m2": 8, "float8_e4m3fnuz": 8, "float8_e5m2fnuz": 8,
}  # fmt: skip


def best_labels(labels: Iterable[Label]) -> dict[int, Label]:
    """Each event's label whose owner comes first; of equal ones the first.

    >>> best_labels([Label(3, "input"), Label(3, "buffer", "mask"), Label(3, "buffer", "same")])[3].name
    'mask'
    """
    best: dict[int, Label] = {}
    for label in labels:
        known = best.setdefault(label.event, label)
        if known is not label and _RANKS[label.owner] < _RANKS[known.owner]:
            best[label.event] = label
    return best


def parameter_of(label: Label) -> str:
    """The name of the parameter or buffer that a label is about; "" for inputs, which no module owns.

    >>> parameter_of(Label(0, "optimizer state", "exp_avg of fc.weight"))
    'fc.weight'
    """
    if label.owner not in _NAMED_BY_PARAMETERS:
        return ""
    return label.name.rpartition(" of ")[2] if label.owner == OPTIMIZER_STATE else label.name


def size_of(tensor: Label | ModuleOutput) -> int | None:
    """What a tensor of this type and shape takes, in bytes; None where they are not known.

    >>> size_of(Label(0, "gradient", "fc.weight", "float32", (10, 20)))
    800
    """
    if tensor.shape is None or tensor.dtype not in _BITS:
        return None
    return math.prod(tensor.shape) * _BITS[tensor.dtype] // 8


def sizes_of_outputs(outputs: Iterable[ModuleOutput]) -> dict[str, tuple[int, Label]]:
    """By module: the bytes of its output, and what can be said of a tensor of that size which the module made."""
    sizes = {}
    for output in outputs:
        size = size_of(output)
        if size is not None:
            sizes[output.path] = size, Label(BEFORE, "", "", output.dtype, output.shape)
    return sizes


def shapes_by_modules(
    lifetimes: Lifetimes, module_of: array[int], modules: Sequence[str], sizes: Mapping[str, tuple[int, Label]]
) -> dict[int, Label]:
    """By allocation: type and shape, where its size is that of the output of the module that made it."""
    by_number = {number: sizes[path] for number, path in enumerate(modules) if path in sizes}
    if not by_number:
        return {}
    nothing = (-1, Label(BEFORE, ""))
    expected = [by_number.get(number, nothing) for number in range(len(modules))]
    return {
        index: expected[module][1]
        for index, (module, size) in enumerate(zip(module_of, lifetimes.requested_bytes, strict=True))
        if size == expected[module][0]
    }

"""What models give for the pieces of a batch, put together as if it had been given for the whole batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from dryfit.errors import UsageError


def flatten(output: Any) -> list[torch.Tensor]:
    """The tensors in a tensor, tuple, list, mapping or dataclass, in order.

    >>> [tensor.shape[0] for tensor in flatten({"image": torch.zeros(2, 3), "text": (torch.zeros(4), "a name")})]
    [2, 4]
    """
    if isinstance(output, torch.Tensor):
        return [output]
    if isinstance(output, Mapping):
        values: Sequence[Any] = [*output.values()]
    elif isinstance(output, (list, tuple)):
        values = output
    elif dataclasses.is_dataclass(output) and not isinstance(output, type):
        values = [getattr(output, field.name) for field in dataclasses.fields(output)]
    else:
        return []
    return [tensor for value in values for tensor in flatten(value)]


def rebuild(output: Any, tensors: Iterator[torch.Tensor]) -> Any:
    """The same output with other tensors in the place of its own."""
    if isinstance(output, torch.Tensor):
        return next(tensors)
    if isinstance(output, Mapping):
        changed = {name: rebuild(value, tensors) for name, value in output.items()}
        return changed if type(output) is dict else type(output)(changed)  # type: ignore[call-arg]
    if isinstance(output, tuple) and hasattr(output, "_fields"):
        return type(output)(*(rebuild(value, tensors) for value in output))
    if isinstance(output, (list, tuple)):
        return type(output)(rebuild(value, tensors) for value in output)
    if dataclasses.is_dataclass(output) and not isinstance(output, type):
        names = [field.name for field in dataclasses.fields(output)]
        return dataclasses.replace(output, **{name: rebuild(getattr(output, name), tensors) for name in names})
    return output


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The output of a whole batch, made from its pieces'; `leaves` are the tensors in it, and take gradients."""

    output: Any
    leaves: tuple[torch.Tensor, ...]
    rows: tuple[tuple[int, ...], ...]  # of each leaf, how many are from which piece

    def gradients(self, piece: int) -> list[torch.Tensor | None]:
        """The part of each leaf's gradient that a piece's tensor has; that of a number is the last piece's."""
        parts: list[torch.Tensor | None] = []
        for leaf, rows in zip(self.leaves, self.rows, strict=True):
            if leaf.grad is None or leaf.dim() == 0:
                parts.append(leaf.grad if piece == len(rows) - 1 else None)
            else:
                parts.append(leaf.grad.narrow(0, sum(rows[:piece]), rows[piece]))
        return parts


def join(outputs: Sequence[Any], whose: str) -> Joined:
    """Put pieces' outputs together along the first dimension of each tensor.

    A number (a tensor without a dimension), such as a temperature, is the same for each piece, and stays one.

    Raises:
        UsageError: the pieces gave no tensors, different numbers of them, or numbers that differ.
    """
    pieces = [flatten(output) for output in outputs]
    counts = sorted({len(tensors) for tensors in pieces})
    if counts == [0] or len(counts) > 1:
        raise UsageError(
            f"{whose} gave {' or '.join(map(str, counts))} tensors for a micro-batch. It has to give one or more, as "
            f"many for each: a tensor, or a tuple, list, dict or dataclass of tensors."
        )
    joined = [_join(parts, whose) for parts in zip(*pieces, strict=True)]
    leaves = tuple(each.detach().requires_grad_(each.is_floating_point() or each.is_complex()) for each in joined)
    rows = tuple(tuple(part.shape[0] if part.dim() else 0 for part in parts) for parts in zip(*pieces, strict=True))
    return Joined(output=rebuild(outputs[0], iter(leaves)), leaves=leaves, rows=rows)


def _join(parts: Sequence[torch.Tensor], whose: str) -> torch.Tensor:
    if parts[0].dim():
        if len({part.shape[1:] for part in parts}) > 1:
            raise UsageError(
                f"{whose} gave tensors of shapes {', '.join(str(tuple(part.shape)) for part in parts[:4])} for "
                f"micro-batches, which cannot be joined along their first dimension. Make the others equal, by padding "
                f"for example."
            )
        return torch.cat([*parts])
    numbers = [part.item() for part in parts]
    if any(number != numbers[0] for number in numbers):
        raise UsageError(
            f"{whose} gave a number that differs between micro-batches: "
            f"{', '.join(f'{number:.6g}' for number in numbers[:4])}. Numbers have to be the same for each, as a "
            f"temperature is; give what belongs to samples, such as losses, as a tensor with a row for each."
        )
    return parts[-1].clone()

"""What models give for the pieces of a batch, put together as if it had been given for the whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dryfit.errors import UsageError
from dryfit.train.nested import changed, tensors_in


@dataclass(frozen=True, slots=True, kw_only=True)
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
    pieces = [tensors_in(output) for output in outputs]
    counts = sorted({len(tensors) for tensors in pieces})
    if counts == [0] or len(counts) > 1:
        raise UsageError(
            f"{whose} gave {' or '.join(map(str, counts))} tensors for a micro-batch. It has to give one or more, as "
            f"many for each: a tensor, or a tuple, list, dict or dataclass of tensors."
        )
    joined = [_join(parts, whose) for parts in zip(*pieces, strict=True)]
    leaves = tuple(each.detach().requires_grad_(each.is_floating_point() or each.is_complex()) for each in joined)
    rows = tuple(tuple(part.shape[0] if part.dim() else 0 for part in parts) for parts in zip(*pieces, strict=True))
    following = iter(leaves)
    output = changed(outputs[0], lambda each: next(following) if isinstance(each, torch.Tensor) else each)
    return Joined(output=output, leaves=leaves, rows=rows)


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

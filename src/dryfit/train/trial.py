"""The ways to the gradient of a batch: in one piece, with the graphs of its pieces kept, and piece by piece."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dryfit.errors import UsageError
from dryfit.train.kept_state import KeptState
from dryfit.train.losses import require_loss

Gradients = dict[str, torch.Tensor]

# A parameter whose gradient is smaller than this part of the model's largest is measured against that part instead: the
# bias of attention keys, say, has no gradient but what rounding leaves.
_SMALLEST_PART = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterDifference:
    """How far one parameter's gradient is from the whole batch's: the largest difference of any of its elements.

    `relative` is against the largest element of the whole batch's gradient of this parameter, or against a thousandth
    of the model's largest where that is more.
    """

    name: str
    absolute: float
    relative: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A model, a loss, and a batch with its pieces. Each pass begins from the same state, and leaves no gradient."""

    model: nn.Module
    loss_of: Callable[[Any, Any], Any]
    batch: Any
    pieces: Sequence[Any]
    whole_weight: float
    weights: tuple[float, ...]
    state: KeptState

    def whole(self, batch: Any = None, *, reseeded: bool = False) -> Gradients:
        """The gradient of the whole batch, or of another one in its place."""
        self.state.rewind()
        if reseeded:
            self.state.reseed()
        loss = self._loss(self.batch if batch is None else batch, "the whole batch")
        return self._backward(self.whole_weight * loss)

    def graphs_kept(self) -> Gradients:
        """One backward from the weighted sum of the pieces' losses."""
        self.state.rewind()
        losses = [weight * self._loss(*piece) for weight, piece in zip(self.weights, self._named(), strict=True)]
        return self._backward(torch.stack([each.reshape(()) for each in losses]).sum())

    def piece_by_piece(self, *, same_buffers: bool = False) -> Gradients:
        """A backward after each piece, as accumulation has it; with the first one's buffers for each, on request."""
        self.state.rewind()
        for weight, piece in zip(self.weights, self._named(), strict=True):
            if same_buffers:
                self.state.rewind_buffers()
            (weight * self._loss(*piece)).backward()  # type: ignore[no-untyped-call]
        return self._take()

    def of_piece(self, at: int) -> Gradients:
        """The gradient of one piece, its loss as it is."""
        self.state.rewind()
        return self._backward(self._loss(*self._named()[at]))

    def not_finite(self) -> str:
        """Which piece has a loss or a gradient that is no finite number, in words; "" where none has."""
        for piece, whose in self._named():
            self.state.rewind()
            loss = self._loss(piece, whose)
            value = float(loss.detach())
            gradients = self._backward(loss)
            if not math.isfinite(value):
                return f"The loss of {whose} is {value}"
            for name, gradient in gradients.items():
                if not math.isfinite(_largest_element(gradient)):
                    return f"The gradient of {name} is not finite for {whose}"
        return ""

    def difference(self) -> float:
        """The largest relative difference between the whole batch and piece by piece, as the model now is."""
        whole = self.whole()
        return largest(compare(self.piece_by_piece(), whole))

    def _named(self) -> list[tuple[Any, str]]:
        return [(piece, f"micro-batch {at + 1} of {len(self.pieces)}") for at, piece in enumerate(self.pieces)]

    def _loss(self, batch: Any, whose: str) -> torch.Tensor:
        return require_loss(self.loss_of(self.model, batch), whose)

    def _backward(self, loss: torch.Tensor) -> Gradients:
        loss.backward()  # type: ignore[no-untyped-call]
        return self._take()

    def _take(self) -> Gradients:
        gradients = {}
        for name, parameter in self.model.named_parameters():
            if parameter.grad is not None:
                gradients[name] = parameter.grad
                parameter.grad = None
        return gradients


def compare(found: Gradients, whole: Gradients) -> tuple[ParameterDifference, ...]:
    """Each parameter's difference; a gradient that only one of them has is against zero.

    Raises:
        UsageError: the whole batch's gradient is zero or not finite, so nothing can be measured against it.
    """
    sizes = {name: _largest_element(gradient) for name, gradient in whole.items()}
    bad = next((name for name, size in sizes.items() if size != size or size == float("inf")), None)
    if bad is not None:
        raise UsageError(f"The whole batch's gradient of {bad} is not finite, so nothing can be compared with it.")
    top = max(sizes.values(), default=0.0)
    if top == 0:
        raise UsageError("The whole batch's gradient is zero for every parameter, so nothing can be compared with it.")
    differences = []
    for name in dict.fromkeys([*whole, *found]):
        one, other = found.get(name), whole.get(name)
        if one is None or other is None:
            absolute = _largest_element(one if other is None else other)  # type: ignore[arg-type]
        else:
            absolute = _largest_element(_wide(one) - _wide(other))
        relative = absolute / max(sizes.get(name, 0.0), top * _SMALLEST_PART)
        differences.append(ParameterDifference(name=name, absolute=absolute, relative=relative))
    return tuple(differences)


def largest(differences: Sequence[ParameterDifference]) -> float:
    """The largest relative difference of any parameter."""
    return max(map(relative_difference, differences))


def relative_difference(difference: ParameterDifference) -> float:
    """A parameter's relative difference; one that is no number counts as infinite."""
    return difference.relative if difference.relative == difference.relative else math.inf


def sample(gradients: Gradients, names: Sequence[str], entries: int) -> torch.Tensor:
    """Up to so many elements, evenly spread over the parameters' own; zeros where there is no gradient."""
    parts = []
    for name in names:
        flat = _wide(gradients[name].detach()).reshape(-1)
        parts.append(flat[:: max(1, -(-flat.numel() * len(names) // entries))].double().cpu())
    return torch.cat(parts)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.to_dense() if tensor.is_sparse else tensor).to(torch.promote_types(tensor.dtype, torch.float32))


def _largest_element(tensor: torch.Tensor) -> float:
    return float(_wide(tensor).abs().max()) if tensor.numel() else 0.0

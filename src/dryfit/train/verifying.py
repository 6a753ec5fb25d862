"""Passes without checkpointing and one with it, compared, and everything put back."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dryfit.errors import UsageError
from dryfit.train.batch_norms import name_layers
from dryfit.train.kept_state import KeptState
from dryfit.train.losses import require_loss
from dryfit.train.out_of_memory import is_out_of_memory
from dryfit.train.rehearsing import is_rehearsal

# Differences relative to a tensor's largest element. Two plain passes differ where kernels add in no fixed order: some
# times that much is rounding still, and so is what the dtype's sums round to. More than the most noise is no rounding.
_ROUNDING = {torch.float64: 1e-9, torch.float32: 1e-5}
_ROUNDINGS_IN_16_BITS = 4  # times the dtype's epsilon
_NOISE = 4
_MOST_NOISE = 2e-2
# A tensor whose largest element is less than this part of the largest of all is measured against that part.
_SMALLEST_PART = 1e-3

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pass:
    loss: torch.Tensor
    gradients: Tensors
    buffers: Tensors


class Verification:
    """Made before blocks are checkpointed, when it runs two plain passes; `compare` runs one as the model then is."""

    def __init__(
        self, model: nn.Module, loss_of: Callable[[Any, Any], Any], batch: Any, blocks: Sequence[nn.Module]
    ) -> None:
        self._model, self._loss_of, self._batch = model, loss_of, batch
        self._cards = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
        self._state = KeptState(model)
        try:
            if not any(block.training for block in blocks):
                model.train()  # in eval mode nothing would be checkpointed
            self._plain = self._run()
            self._noise = _largest(_differences(self._run(), self._plain))
            if self._noise > _MOST_NOISE and not is_rehearsal():
                raise UsageError(
                    "The model cannot be verified: two passes without checkpointing, from the same state and random "
                    "numbers, differ from each other. loss_of or the model changes something of its own, or draws "
                    "numbers from a generator of its own. Leave verify= out, or fix those numbers."
                )
        except BaseException:
            self.restore()
            raise

    def restore(self) -> None:
        """Put buffers, gradients, modes and random number generators back bit for bit."""
        self._state.restore()
        for device, state in enumerate(self._cards):
            torch.cuda.set_rng_state(state, device)

    def compare(self, *, allow_unused: bool) -> str:
        """Run one pass as the model now is, compare it with the plain one, and say what was found.

        Raises:
            UsageError: a trainable tensor gets no gradient, or loss, gradients or buffers differ by more than rounding.
        """
        found = self._run_again()
        self._require_gradients(found, allow_unused=allow_unused)
        if is_rehearsal():
            return "Not verified: on a virtual card nothing is computed."
        counted = f"loss, {len(found.gradients)} gradients and {len(found.buffers)} buffers"
        if _bit_equal(found, self._plain):
            return f"Verified on one batch: {counted} are bit-equal with and without checkpointing."
        differences = _differences(found, self._plain)
        most = _largest(differences)
        dtypes = {gradient.dtype for gradient in found.gradients.values()}
        if most <= max([_NOISE * self._noise, *map(_rounding, dtypes)]):
            return (
                f"Verified on one batch: {counted} are equal to rounding with and without checkpointing; largest "
                f"relative difference {most:.1e}, and {self._noise:.1e} between two passes without it."
            )
        worst = sorted(differences, key=lambda name: _number(differences[name]), reverse=True)
        raise UsageError(
            f"Checkpointing changes what the model computes: largest relative difference {most:.1e}, at "
            f"{name_layers(worst)}. A block computed again does not give what its forward gave: it draws random "
            f"numbers from a generator of its own, or changes and reads an attribute that is no buffer. Register it as "
            f"a buffer, or give blocks= without that block."
        )

    def _run_again(self) -> _Pass:
        try:
            return self._run()
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            first_line = str(error).partition("\n")[0]
            raise UsageError(
                f"The batch goes through without checkpointing, and with it fails: {first_line} A block computed again "
                f"does something else than at first. Give blocks= without that block."
            ) from error

    def _require_gradients(self, found: _Pass, *, allow_unused: bool) -> None:
        # of parameters that FSDP has on other ranks alone, this one has no elements, and no gradient
        trainable = [name for name, each in self._model.named_parameters() if each.requires_grad and each.numel()]
        missing = [name for name in trainable if name not in found.gradients]
        lost = [name for name in missing if name in self._plain.gradients]
        how_many = f"{len(lost or missing)} of {len(trainable)} trainable tensors get no gradient"
        if lost:
            raise UsageError(
                f"With checkpointing {how_many}, and get one without: {name_layers(lost)}. Something inside these "
                f"blocks cuts the graph when it is checkpointed; give blocks= without them."
            )
        if missing and not allow_unused:
            raise UsageError(
                f"{how_many}, with checkpointing or without: {name_layers(missing)}. The loss does not depend on them, "
                f"or something cuts the graph: a reentrant checkpoint whose inputs require no gradient (frozen "
                f"embeddings, LoRA), detach(), no_grad. Freeze what is not to be trained (requires_grad_(False)), or "
                f"give allow_unused=True if other batches use them."
            )

    def _run(self) -> _Pass:
        self._state.rewind()
        for device, state in enumerate(self._cards):
            torch.cuda.set_rng_state(state, device)
        with torch.enable_grad():
            loss = require_loss(self._loss_of(self._model, self._batch), "the batch to verify with")
            loss.backward()  # type: ignore[no-untyped-call]
        loss = loss.detach()
        if not math.isfinite(float(loss)) and not is_rehearsal():
            raise UsageError(f"The loss of the batch to verify with is {float(loss)}, so nothing can be compared.")
        gradients: Tensors = {}
        for name, parameter in self._model.named_parameters():
            if parameter.grad is not None:
                gradients[name] = _local(parameter.grad)
                parameter.grad = None
        buffers = {name: _local(buffer.detach()).clone() for name, buffer in self._model.named_buffers()}
        return _Pass(loss=loss, gradients=gradients, buffers=buffers)


def _bit_equal(one: _Pass, other: _Pass) -> bool:
    pairs = _pairs(one, other)
    return all(a is not None and b is not None and torch.equal(a, b) for a, b in pairs.values())


def _pairs(one: _Pass, other: _Pass) -> dict[str, tuple[torch.Tensor | None, torch.Tensor | None]]:
    pairs: dict[str, tuple[torch.Tensor | None, torch.Tensor | None]] = {"the loss": (one.loss, other.loss)}
    for found, expected in ((one.gradients, other.gradients), (one.buffers, other.buffers)):
        for name in dict.fromkeys([*expected, *found]):
            pairs[name] = (found.get(name), expected.get(name))
    return pairs


def _differences(one: _Pass, other: _Pass) -> dict[str, float]:
    """How far each tensor is off, relative to its largest element; infinite where only one pass has it."""
    top = max((_largest_element(each) for each in other.gradients.values()), default=0.0)
    differences = {}
    for name, (found, expected) in _pairs(one, other).items():
        if found is None or expected is None or found.shape != expected.shape:
            differences[name] = float("inf")
            continue
        size = _largest_element(expected)
        if name in other.gradients:
            size = max(size, top * _SMALLEST_PART)
        off = _largest_element(_wide(found) - _wide(expected))
        differences[name] = off / size if size else (float("inf") if off else 0.0)
    return differences


def _largest(differences: dict[str, float]) -> float:
    return max(map(_number, differences.values()), default=0.0)


def _number(difference: float) -> float:
    return difference if difference == difference else float("inf")


def _rounding(dtype: torch.dtype) -> float:
    return _ROUNDING.get(dtype, _ROUNDINGS_IN_16_BITS * torch.finfo(dtype).eps)


def _local(tensor: torch.Tensor) -> torch.Tensor:
    local = getattr(tensor, "to_local", None)  # a DTensor's part on this rank
    return local() if local is not None else tensor


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    dense = tensor.to_dense() if tensor.is_sparse else tensor
    return dense.to(torch.promote_types(dense.dtype, torch.float32))


def _largest_element(tensor: torch.Tensor) -> float:
    return float(_wide(tensor).abs().max()) if tensor.numel() else 0.0

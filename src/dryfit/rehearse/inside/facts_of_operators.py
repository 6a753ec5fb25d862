"""What the operators of a program say of it: FLOPs, cross-entropy and attention, what goes over the host's bus."""

from __future__ import annotations

from typing import Any

import torch

from dryfit.rehearse.inside import torch_private
from dryfit.rehearse.inside.flops import FlopCounter, Look, is_on_card

_identity_of = torch_private.storage_identity()

# A softmax over this many positions or fewer is not what memory is spent on; those of routers have few columns too.
_LEAST_SQUARE, _LEAST_OBLONG = 16, 64
_LOSSES = ("aten::nll_loss_forward", "aten::nll_loss2d_forward")
_SOFTMAX = ("aten::_softmax", "aten::_safe_softmax")
# What keeps the numbers as they are, elsewhere or in another type, and what torch turns a Linear's weight with.
_COPIES = ("aten::_to_copy", "aten::clone")
_RESHAPES = ("aten::_unsafe_view", "aten::_reshape_alias")  # views that their schemas do not call so
_TURNS = ("aten::t", "aten::transpose", "aten::permute", "aten::numpy_T")


class OperatorFacts:
    """What was seen so far; sizes are bytes. `look_for` is what `OperatorsSeen` asks.

    What comes of a Linear layer is known by its storage's identity: no tensor is kept alive. Identities are used again,
    so those of results that are something else are taken out as they are made, and all by `forget_tensors`.
    """

    def __init__(self) -> None:
        self.flops = FlopCounter()
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget everything but FLOPs, which are counted on."""
        self.host_bytes = 0
        self.cross_entropy_bytes = self.cross_entropy_classes = 0
        self.cross_entropy_from_linear = False
        self.attention_square_bytes = 0
        self.grad_scaler = False
        self.foreach = self.fused = False
        self.forget_tensors()

    def forget_tensors(self) -> None:
        """Forget what is known of tensors, which may be gone."""
        self._weights: set[int] = set()
        self._from_linear: set[int] = set()
        self._log_softmax: dict[int, tuple[int, int, bool]] = {}

    def look_for(self, operator: Any) -> Look | None:
        name = operator.name().partition(".")[0]
        keeps_numbers = name in (*_COPIES, *_RESHAPES) or torch_private.returns_view(operator)
        asked = (
            None if keeps_numbers else self._is_something_else,
            self.flops.look_for(operator),
            self._own(name),
        )
        looks = [look for look in asked if look is not None]
        if len(looks) < 2:
            return looks[0] if looks else None

        def look(args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            for each in looks:
                each(args, kwargs, output)

        return look

    def _own(self, name: str) -> Look | None:
        if name in _SOFTMAX:
            return self._softmax
        if name in _LOSSES:
            return self._loss
        if name in _COPIES:
            return self._copied
        if name in _TURNS:
            return self._turned
        if name.startswith("aten::_foreach_"):
            return self._foreach_copied if name == "aten::_foreach_copy_" else self._several_at_once
        if name.startswith("aten::_fused_adam") or name.startswith(("aten::_fused_sgd", "aten::_fused_adagrad")):
            return self._updated_by_one_kernel
        return {
            "aten::mm": self._multiplied,
            "aten::addmm": self._multiplied,
            "aten::copy_": self._copied_into,
            "aten::_local_scalar_dense": self._read,
            "aten::_log_softmax": self._log_softmaxed,
            "aten::_amp_update_scale_": self._scaled,
        }.get(name)

    # --- over the host's bus -------------------------------------------------------------------------------------

    def _copied(self, args: tuple[Any, ...], _: dict[str, Any], output: Any) -> None:
        source = args[0]
        if source.is_cuda != output.is_cuda:
            self.host_bytes += output.numel() * output.itemsize
        elif source.is_cuda:
            self._goes_on_as(source, output)

    def _copied_into(self, args: tuple[Any, ...], _: dict[str, Any], output: Any) -> None:
        if isinstance(args[1], torch.Tensor) and args[0].is_cuda != args[1].is_cuda:
            self.host_bytes += args[0].numel() * args[0].itemsize

    def _foreach_copied(self, args: tuple[Any, ...], _: dict[str, Any], output: Any) -> None:
        self.foreach = True
        for to, source in zip(args[0], args[1], strict=False):
            self._copied_into((to, source), {}, None)

    def _read(self, args: tuple[Any, ...], _: dict[str, Any], output: Any) -> None:
        if args[0].is_cuda:
            self.host_bytes += args[0].itemsize

    # --- cross-entropy -------------------------------------------------------------------------------------------

    def _turned(self, args: tuple[Any, ...], _: dict[str, Any], output: Any) -> None:
        if isinstance(args[0], torch.nn.Parameter) and args[0].is_cuda:
            self._weights.add(_identity_of(args[0]))

    def _goes_on_as(self, source: Any, output: Any) -> None:
        """A tensor was copied on the card: a weight cast by autocast, logits or their log-softmax to float32."""
        before, after = _identity_of(source), _identity_of(output)
        if before == after:
            return
        for known in (self._weights, self._from_linear):
            known.discard(after)
            if before in known:
                known.add(after)
        self._log_softmax.pop(after, None)
        if before in self._log_softmax:
            self._log_softmax[after] = self._log_softmax[before]
        if isinstance(source, torch.nn.Parameter):
            self._weights.add(after)

    def _multiplied(self, args: tuple[Any, ...], _: dict[str, Any], output: Any) -> None:
        if is_on_card(args, output) and _identity_of(args[-1]) in self._weights:
            self._from_linear.add(_identity_of(output))

    def _is_something_else(self, _: tuple[Any, ...], __: dict[str, Any], output: Any) -> None:
        if isinstance(output, torch.Tensor) and self._weights and output.is_cuda:
            made = _identity_of(output)
            self._from_linear.discard(made)
            self._weights.discard(made)
            self._log_softmax.pop(made, None)

    def _log_softmaxed(self, args: tuple[Any, ...], _: dict[str, Any], output: Any) -> None:
        logits, dim = args[0], args[1]
        if not logits.is_cuda:
            return
        # Of anything smaller than what has been seen, nothing is asked.
        size_bytes = logits.numel() * logits.itemsize
        if size_bytes >= self.cross_entropy_bytes and logits.dim():
            of_linear = _identity_of(logits) in self._from_linear
            self._log_softmax[_identity_of(output)] = size_bytes, logits.shape[dim], of_linear

    def _loss(self, args: tuple[Any, ...], _: dict[str, Any], output: Any) -> None:
        found = self._log_softmax.pop(_identity_of(args[0]), None) if args[0].is_cuda else None
        if found is not None:
            self.cross_entropy_bytes, self.cross_entropy_classes, self.cross_entropy_from_linear = found

    # --- attention, optimizers -----------------------------------------------------------------------------------

    def _softmax(self, args: tuple[Any, ...], _: dict[str, Any], output: Any) -> None:
        shape, dim = tuple(output.shape), args[1]
        if not output.is_cuda or len(shape) < 3 or dim not in (-1, len(shape) - 1):
            return
        is_square = shape[-1] == shape[-2] >= _LEAST_SQUARE
        if is_square or (len(shape) > 3 and min(shape[-2:]) >= _LEAST_OBLONG):
            self.attention_square_bytes = max(self.attention_square_bytes, output.numel() * output.itemsize)

    def _several_at_once(self, args: tuple[Any, ...], _: dict[str, Any], output: Any) -> None:
        self.foreach = True

    def _updated_by_one_kernel(self, args: tuple[Any, ...], _: dict[str, Any], output: Any) -> None:
        self.fused = True

    def _scaled(self, args: tuple[Any, ...], _: dict[str, Any], output: Any) -> None:
        self.grad_scaler = True

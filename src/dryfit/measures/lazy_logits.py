"""Logits that are not computed until something needs them: a cross-entropy computes them in chunks, and keeps none.

    F.linear = lazy_linear(Heads(chunks=8))
    logits = model.head(hidden)  # nothing is computed
    F.cross_entropy(logits.view(-1, vocabulary), targets.view(-1))

What may come between a head and its loss leaves them as they are: another shape with the classes still last, a slice of
the positions, another dtype. Anything else computes them, as the layer would have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import EllipsisType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from dryfit.measures.moments import CannotSwitchOn

_linear, _cross_entropy = F.linear, F.cross_entropy
_Shape = tuple[int, ...]


def chunked_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    *,
    chunks: int,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """The cross-entropy of the logits `F.linear(hidden, weight, bias)`, of which one chunk exists at a time.

    It allocates and frees what the measure's snippet does.
    """

    def loss_of_chunk(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        logits = _linear(hidden, weight, bias).float()
        smoothing: dict[str, Any] = {"label_smoothing": label_smoothing}
        return _cross_entropy(logits, targets, ignore_index=ignore_index, reduction="sum", **smoothing)

    hidden, targets = hidden.flatten(0, -2), targets.flatten()
    parts = zip(hidden.chunk(chunks), targets.chunk(chunks), strict=True)
    total: Any = sum(checkpoint(loss_of_chunk, h, weight, t, use_reentrant=False) for h, t in parts)
    loss: Tensor = total / (targets != ignore_index).sum() if reduction == "mean" else total
    return loss


@dataclass(slots=True, kw_only=True)
class Heads:
    """Which linear layers are heads: learnt from what becomes of their output, and known by their weight's shape.

    `chunks` are as many as the positions are divided into, `acts` is called whenever a loss was computed in chunks, and
    `guard` is that of `Moments`.
    """

    chunks: int
    acts: Callable[[], None] = lambda: None
    guard: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda do: do
    device: str = "cuda"
    found: set[_Shape] = field(default_factory=set)
    others: set[_Shape] = field(default_factory=set)

    def may_be(self, input: Tensor, weight: Tensor) -> bool:
        """Whether this layer may be a head: it gives more than it takes, and has not been seen to be another."""
        return (
            type(input) is Tensor
            and input.device.type == self.device
            and input.dim() > 1
            and input.numel() > 0
            and weight.dim() == 2
            and weight.shape[0] > weight.shape[1]
            and weight.is_floating_point()
            and tuple(weight.shape) not in self.others
        )


def lazy_linear(heads: Heads) -> Callable[..., Tensor]:
    """`torch.nn.functional.linear`, but that what may be logits is not computed yet."""

    def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if torch.compiler.is_compiling() or not heads.may_be(input, weight):
            return _linear(input, weight, bias)
        in_autocast = torch.is_autocast_enabled(heads.device)
        source = _Source(
            heads=heads,
            weight=weight,
            bias=bias,
            dtype=torch.get_autocast_dtype(heads.device) if in_autocast else weight.dtype,
            with_grad=torch.is_grad_enabled() and (input.requires_grad or weight.requires_grad),
        )
        blank = input.detach()[(0,) * input.dim()].expand(*input.shape[:-1], weight.shape[0])

        def compute(used_by: str) -> Tensor:
            heads.guard(_is_no_head)(source, used_by)
            source.is_computed = True
            return _linear(input, weight, bias)

        return _logits(source, blank, compute=compute, hidden=lambda: input)

    return linear


@dataclass(slots=True, kw_only=True)
class _Source:
    """The call of a linear layer that logits come from; `is_computed` once it has been computed after all."""

    heads: Heads
    weight: Tensor
    bias: Tensor | None
    dtype: torch.dtype
    with_grad: bool
    is_computed: bool = False


class Logits(Tensor):
    """Logits that are not computed yet; for C++ they are a number of the hidden states, expanded to their shape.

    `blank` is that as a plain tensor. `compute(used_by)` gives the logits themselves, for a function of that name that
    needs them; `hidden()` what the layer would be given for them, with one row for each row of theirs. `classes_last`
    is False where the classes are the second dimension of three.
    """

    source: _Source
    blank: Tensor
    kind: torch.dtype
    compute: Callable[[str], Tensor]
    hidden: Callable[[], Tensor]
    classes_last: bool
    computed: Tensor | None

    def itself(self, used_by: str) -> Tensor:
        """The logits, computed now if they have not been."""
        if self.computed is None:
            self.computed = self.compute(used_by)
        return self.computed

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], _: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if args and isinstance(args[0], Logits) and not args[0].source.is_computed:
            logits, rest = args[0], args[1:]
            if function in _ASKED:
                return _ASKED[function](logits, *rest, **kwargs)
            if function in (_cross_entropy, F.cross_entropy):
                return _loss(logits, *rest, **kwargs)
            followed = _FOLLOWED[function](logits, function, *rest, **kwargs) if function in _FOLLOWED else None
            if followed is not None:
                return followed
        asked = function.__self__ if function.__name__ == "__get__" else function  # type: ignore[attr-defined]
        return function(*_computed(args, asked.__name__), **_computed(kwargs, asked.__name__))


def _logits(
    source: _Source,
    blank: Tensor,
    *,
    compute: Callable[[str], Tensor],
    hidden: Callable[[], Tensor],
    kind: torch.dtype | None = None,
    classes_last: bool = True,
) -> Logits:
    logits: Logits = blank.as_subclass(Logits)
    logits.source, logits.blank, logits.kind = source, blank, kind or source.dtype
    logits.compute, logits.hidden, logits.classes_last = compute, hidden, classes_last
    logits.computed = None
    return logits


def _computed(values: Any, used_by: str) -> Any:
    """Arguments of a function, with the logits among them computed."""
    if isinstance(values, Logits):
        return values.itself(used_by)
    if isinstance(values, dict):
        return {key: _computed(value, used_by) for key, value in values.items()}
    if type(values) in (list, tuple):
        return type(values)(_computed(value, used_by) for value in values)
    return values


def _is_no_head(source: _Source, used_by: str) -> None:
    """Note that the output of a layer is used for something else than a loss.

    Raises:
        CannotSwitchOn: it is used for a loss too.
    """
    shape = tuple(source.weight.shape)
    if not source.with_grad:  # in an evaluation other uses are fine, and say nothing of the training
        return
    if shape in source.heads.found:
        raise CannotSwitchOn(
            f"In training the program uses the logits for more than their cross-entropy: {used_by} needs all of them "
            "at once. Take it out of the training step, or have it use the logits of a part of the batch."
        )
    source.heads.others.add(shape)


# --- the loss -----------------------------------------------------------------------------------------------------


def _loss(logits: Logits, target: Tensor, **settings: Any) -> Tensor:
    heads, source = logits.source.heads, logits.source
    chosen = heads.guard(_settings)(logits, target, **settings)
    heads.found.add(tuple(source.weight.shape))
    loss = chunked_cross_entropy(logits.hidden(), source.weight, source.bias, target, chunks=heads.chunks, **chosen)
    heads.acts()
    return loss


def _settings(
    logits: Logits,
    target: Tensor,
    *,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> dict[str, Any]:
    """The settings of a cross-entropy that chunks can have too.

    Raises:
        CannotSwitchOn: they cannot.
    """
    positions = logits.blank.shape[:-1] if logits.classes_last else (logits.blank.shape[0], logits.blank.shape[2])
    hindrance = ""
    if weight is not None:
        hindrance = "has a weight for each class"
    elif target.is_floating_point():
        hindrance = "has probabilities of classes as its target"
    elif reduction not in ("mean", "sum") or size_average is not None or reduce is not None:
        hindrance = f"has reduction={reduction!r}, size_average={size_average} and reduce={reduce}"
    elif tuple(target.shape) != tuple(positions) or (logits.classes_last and len(positions) != 1):
        hindrance = f"is given logits of shape {tuple(logits.blank.shape)} and a target of shape {tuple(target.shape)}"
    if hindrance:
        raise CannotSwitchOn(
            f"The program's cross-entropy {hindrance}. Chunks are computed for one class per position, with "
            'reduction="mean" or "sum"; write the sum over chunks by hand for anything else.'
        )
    return {"ignore_index": ignore_index, "reduction": reduction, "label_smoothing": label_smoothing}


# --- what leaves logits as they are -------------------------------------------------------------------------------


def _reshaped(logits: Logits, function: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Logits | None:
    if args and isinstance(args[0], torch.dtype):  # view(dtype)
        return None
    classes = logits.blank.shape[-1]
    blank = function(logits.blank, *args, **kwargs)
    if not logits.classes_last or not blank.dim() or blank.shape[-1] != classes:
        return None
    return _followed(
        logits,
        blank,
        compute=lambda real: function(real, *args, **kwargs),
        hidden=lambda hidden: hidden.reshape(*blank.shape[:-1], hidden.shape[-1]),
    )


def _sliced(logits: Logits, function: Callable[..., Tensor], index: Any) -> Logits | None:
    parts = index if isinstance(index, tuple) else (index,)
    if not logits.classes_last or not all(isinstance(each, (int, slice, EllipsisType, type(None))) for each in parts):
        return None
    after = parts[parts.index(...) + 1 :] if ... in parts else parts
    reaches_classes = (... in parts and after) or sum(each is not None for each in parts) >= logits.blank.dim()
    if reaches_classes and after[-1] != slice(None):
        return None
    blank = function(logits.blank, index)
    return _followed(
        logits,
        blank,
        compute=lambda real: function(real, index),
        hidden=lambda hidden: function(hidden, index),
    )


def _cast(logits: Logits, function: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Logits | None:
    given = [*args, *kwargs.values()]
    if function in _CASTS:
        kind = _CASTS[function]
    elif len(given) == 1 and isinstance(given[0], torch.dtype):
        (kind,) = given
    else:
        return None
    if given and function in _CASTS:
        return None
    return _followed(
        logits, logits.blank, compute=lambda real: function(real, *args, **kwargs), hidden=_same, kind=kind
    )


def _contiguous(logits: Logits, function: Callable[..., Tensor]) -> Logits | None:
    if not logits.classes_last:
        return None
    return _followed(logits, logits.blank, compute=function, hidden=_same)


def _classes_moved(logits: Logits, function: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Logits | None:
    order = args[0] if len(args) == 1 and isinstance(args[0], (tuple, list)) else args
    if kwargs or logits.blank.dim() != 3 or not logits.classes_last:
        return None
    order = [each % 3 for each in order]
    if order not in ([0, 2, 1], [1, 2], [2, 1]):
        return None
    blank = function(logits.blank, *args)
    return _followed(logits, blank, compute=lambda real: function(real, *args), hidden=_same, classes_last=False)


def _same(hidden: Tensor) -> Tensor:
    return hidden


def _followed(
    logits: Logits,
    blank: Tensor,
    *,
    compute: Callable[[Tensor], Tensor],
    hidden: Callable[[Tensor], Tensor],
    kind: torch.dtype | None = None,
    classes_last: bool | None = None,
) -> Logits:
    """What a function has made of logits: computed from theirs, should it have to be."""
    return _logits(
        logits.source,
        blank,
        kind=kind or logits.kind,
        classes_last=logits.classes_last if classes_last is None else classes_last,
        compute=lambda used_by: compute(logits.itself(used_by)),
        hidden=lambda: hidden(logits.hidden()),
    )


def _of_blank(function: Any) -> Callable[..., Any]:
    return lambda logits, *args, **kwargs: function(logits.blank, *args, **kwargs)


def _getters(names: Iterable[str]) -> list[Callable[..., Any]]:
    return [getattr(Tensor, name).__get__ for name in names]


_CASTS = {
    Tensor.float: torch.float32,
    Tensor.double: torch.float64,
    Tensor.half: torch.float16,
    Tensor.bfloat16: torch.bfloat16,
}

_ASKED: dict[Any, Callable[..., Any]] = {
    **{
        each: _of_blank(each)
        for each in (
            *_getters(
                ("shape", "ndim", "device", "is_cuda", "is_cpu", "is_meta", "is_sparse", "is_quantized", "layout")
            ),
            *(Tensor.size, Tensor.dim, Tensor.ndimension, Tensor.numel, Tensor.nelement, Tensor.__len__),
            *(Tensor.get_device, Tensor.is_floating_point, Tensor.is_complex, torch.is_floating_point, torch.numel),
        )
    },
    Tensor.is_contiguous: lambda logits: logits.classes_last,
    Tensor.dtype.__get__: lambda logits: logits.kind,  # type: ignore[attr-defined]
    Tensor.requires_grad.__get__: lambda logits: logits.source.with_grad,  # type: ignore[attr-defined]
}

_FOLLOWED: dict[Any, Callable[..., Logits | None]] = {
    **dict.fromkeys(
        (Tensor.view, Tensor.reshape, Tensor.flatten, Tensor.unflatten, Tensor.squeeze, Tensor.unsqueeze), _reshaped
    ),
    **dict.fromkeys((torch.reshape, torch.flatten, torch.squeeze, torch.unsqueeze), _reshaped),
    **dict.fromkeys((*_CASTS, Tensor.to, Tensor.type), _cast),
    **dict.fromkeys((Tensor.transpose, Tensor.permute, torch.transpose, torch.permute), _classes_moved),
    Tensor.__getitem__: _sliced,
    Tensor.contiguous: _contiguous,
}

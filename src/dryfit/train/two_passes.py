"""Losses that need all outputs of a batch at once, with the graph of one micro-batch alive at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.amp import GradScaler

from dryfit.errors import UsageError
from dryfit.train.batch_norms import batch_norms_in_train_mode, name_layers
from dryfit.train.changed_buffers import ChangedBuffers
from dryfit.train.given import enabled, modules_of, require_micro_batch
from dryfit.train.losses import require_loss
from dryfit.train.nested import tensors_in
from dryfit.train.outputs import join
from dryfit.train.random_states import RandomStates, read_random_states
from dryfit.train.splitting import split
from dryfit.train.synchronising import find_wrappers, synchronising

Encode = Callable[[Any, Any], Any]


def two_pass(
    model: nn.Module | Sequence[nn.Module],
    batch: Any,
    loss_of: Callable[..., Any],
    *,
    micro_batch: int | Sequence[int],
    encode: Encode | Sequence[Encode] | None = None,
    scaler: GradScaler | None = None,
) -> torch.Tensor:
    """Run forward and backward of a loss that compares all samples of a batch with each other, in micro-batches.

        optimizer.zero_grad()
        loss = two_pass(model, pairs, info_nce, micro_batch=64, encode=lambda model, pairs: model(**pairs))
        optimizer.step()

    First every micro-batch is encoded without a graph, and `loss_of` gets the outputs of the whole batch. Its gradient
    with respect to them is computed. Then each micro-batch is encoded again, with a graph, and that gradient goes back
    through it. Gradients are those of one graph over all micro-batches, to rounding; the memory is that of one of them
    and of all outputs. The price is one more forward of the model.

    model, batch: or several models, with a batch for each: two_pass((image, text), (images, texts), clip_loss, ...).
    loss_of: takes the outputs, one argument for each model, and gives a scalar. Parameters that it uses itself, such as
        a temperature, get their gradients too. Outputs may be tuples, dicts or dataclasses of tensors.
    micro_batch: rows per micro-batch, cut along the first dimension; one number, or one for each model.
    encode: `encode(model, micro_batch)` gives the outputs; one function, or one for each model. Without it, the model
        is called with the micro-batch, and with a dict's items by their names.
    scaler: a `torch.amp.GradScaler` that scales the loss; `scaler.step` and `scaler.update` stay in the loop.

    Returns the loss of the whole batch, unscaled and without a graph. Gradients are added to those that are there.
    Dropout draws in both passes the same masks: random numbers of the CPU, the cards, Python and numpy are replayed.
    Buffers move once. Works under autocast; the backward passes leave it.

    With DDP gradients are exchanged after the last micro-batch, with FSDP after each, so there ranks need equally many.
    Negatives from all ranks are the loss's to gather, with a gradient; DDP then averages to the whole loss's gradient:

        from torch.distributed.nn.functional import all_gather

        def loss_of(outputs):
            images, texts = (torch.cat(all_gather(each)) for each in outputs)
            return info_nce(images, texts)

    Raises:
        UsageError: BatchNorm is in train mode, the batch cannot be cut, outputs cannot be put together, or the loss
            does not depend on what a model gave.
    """
    towers = _towers(model, batch, micro_batch, encode)
    scaler = enabled(scaler)
    with torch.no_grad(), _no_casts_kept():
        joined = [join(tower.encode_all(), tower.name) for tower in towers]
    with torch.enable_grad():
        loss = require_loss(loss_of(*(each.output for each in joined)), "the whole batch")
        _backward([loss if scaler is None else scaler.scale(loss)], [None])
        for tower, each in zip(towers, joined, strict=True):
            if tower.has_trainable and all(leaf.grad is None for leaf in each.leaves):
                raise UsageError(
                    f"The loss does not depend on what {tower.name} gave, so that would get no gradient. loss_of takes "
                    f"the outputs of each model, and has to use them without detach()."
                )
        for at, tower in enumerate(towers):
            again = any(tower.model is later.model for later in towers[at + 1 :])
            tower.backward(joined[at].gradients, exchange=not again)
    return loss.detach()


class _Tower:
    """One model, the pieces of its batch, and what the second pass needs to know of the first."""

    def __init__(self, model: nn.Module, pieces: Sequence[Any], encode: Encode, name: str) -> None:
        self.model = model
        self.name = name
        self.has_trainable = any(parameter.requires_grad for parameter in model.parameters())
        self._pieces = pieces
        self._encode = encode
        self._randomness: list[RandomStates] = []
        self._changes: list[ChangedBuffers] = []
        tensors = [*model.parameters(), *tensors_in(pieces[0])]
        self._cards = sorted({each.device.index for each in tensors if each.device.type == "cuda"})

    def encode_all(self) -> list[Any]:
        """The first pass."""
        outputs = []
        changing: set[str] | None = None
        for piece in self._pieces:
            changes = ChangedBuffers(self.model, changing)
            self._randomness.append(read_random_states(self._cards))
            outputs.append(self._encode(self.model, piece))
            changing = (changing or set()) | changes.note()
            self._changes.append(changes)
        return outputs

    def backward(self, gradients_of: Callable[[int], list[torch.Tensor | None]], *, exchange: bool) -> None:
        """The second pass; `exchange` gradients between ranks with the last piece."""
        wrappers = find_wrappers([self.model])
        for at in range(len(self._pieces)):
            last = exchange and at == len(self._pieces) - 1
            with synchronising(wrappers, last=last, sync="auto"):
                if not self._backward_piece(at, gradients_of(at)):
                    return

    def _backward_piece(self, at: int, gradients: list[torch.Tensor | None]) -> bool:
        """Encode one piece again and go back through it; false where there is nothing to train."""
        if all(gradient is None for gradient in gradients):  # a number's gradient is in the last piece alone
            return True
        with self._randomness[at].replayed(), self._changes[at]:
            tensors = tensors_in(self._encode(self.model, self._pieces[at]))
        self._require_same(tensors, gradients, at)
        pairs = [
            (tensor, gradient)
            for tensor, gradient in zip(tensors, gradients, strict=True)
            if gradient is not None and tensor.requires_grad
        ]
        if not pairs and not self.has_trainable:
            return False
        self._require_graph(pairs, at)
        _backward([tensor for tensor, _ in pairs], [gradient for _, gradient in pairs])
        return True

    def _require_graph(self, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], at: int) -> None:
        if not pairs:
            raise UsageError(
                f"What {self.name} gave for micro-batch {at + 1} of {len(self._pieces)} has no graph, though it has "
                f"parameters to train: encode detaches it, or computes it under no_grad."
            )

    def _require_same(self, tensors: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor | None], at: int) -> None:
        now, before = f"{len(tensors)} tensors", f"{len(gradients)}"
        if len(tensors) == len(gradients):
            differ = next(
                (
                    (tensor.shape, gradient.shape)
                    for tensor, gradient in zip(tensors, gradients, strict=True)
                    if gradient is not None and tensor.shape != gradient.shape
                ),
                None,
            )
            if differ is None:
                return
            now, before = f"shape {tuple(differ[0])}", f"{tuple(differ[1])}"
        raise UsageError(
            f"{self.name} gave {now} for micro-batch {at + 1} of {len(self._pieces)} in the second pass, and {before} "
            f"in the first. encode has to give the same for the same micro-batch and random numbers."
        )


def _towers(
    model: nn.Module | Sequence[nn.Module],
    batch: Any,
    micro_batch: int | Sequence[int],
    encode: Encode | Sequence[Encode] | None,
) -> list[_Tower]:
    models = modules_of(
        [*model] if isinstance(model, nn.ModuleList) else model, "two_pass(model, batch, loss_of, micro_batch=...)"
    )
    batches = list(batch) if isinstance(model, (nn.ModuleList, list, tuple)) else [batch]
    rows: list[Any] = [*micro_batch] if isinstance(micro_batch, (list, tuple)) else [micro_batch] * len(models)
    encodes: list[Any] = [*encode] if isinstance(encode, (list, tuple)) else [encode or _call] * len(models)
    for what, given in (("batch", batches), ("micro_batch", rows), ("encode", encodes)):
        if len(given) != len(models):
            raise UsageError(f"{len(models)} models were given, and {what}= has {len(given)}; give one for each.")
    towers = []
    for at, each in enumerate(models):
        require_micro_batch(rows[at])
        name = type(each).__name__ + (f" (model {at + 1} of {len(models)})" if len(models) > 1 else "")
        if norms := batch_norms_in_train_mode(each):
            raise UsageError(
                f"{name} has BatchNorm in train mode at {name_layers([*norms])}, which normalises each micro-batch by "
                f"that alone, so gradients would not be the whole batch's. Use GroupNorm, or freeze the statistics "
                f"(layer.eval()), or keep the batch whole and checkpoint activations instead."
            )
        towers.append(_Tower(each, split(batches[at], rows[at]), encodes[at], name))
    return towers


def _call(model: nn.Module, piece: Any) -> Any:
    return model(**piece) if isinstance(piece, Mapping) else model(piece)


def _backward(tensors: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor | None]) -> None:
    """A backward outside of autocast, which is for forwards alone."""
    with ExitStack() as without:
        for kind in dict.fromkeys(["cpu", *(tensor.device.type for tensor in tensors)]):
            if torch.is_autocast_enabled(kind):
                without.enter_context(torch.autocast(kind, enabled=False))
        torch.autograd.backward(tensors, gradients)


@contextmanager
def _no_casts_kept() -> Iterator[None]:
    """Have autocast keep no casts of weights: those made without a graph would be used in the second pass."""
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)

"""Micro-batches whose size is halved when memory runs out, with the gradient of the whole batch."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import nn
from torch.amp import GradScaler

from dryfit.errors import UsageError
from dryfit.train import splitting
from dryfit.train.attempting import Failure, add_note, attempt, tell_end, tell_smaller
from dryfit.train.batch_norms import batch_norms_in_train_mode, warn_of_batch_norms
from dryfit.train.given import enabled, modules_of, require_micro_batch, require_one_of
from dryfit.train.losses import require_loss
from dryfit.train.normalising import Reduction, count_items, uneven
from dryfit.train.predictions import largest_that_fits
from dryfit.train.rank_averages import RankAverages
from dryfit.train.splitting import rows_of
from dryfit.train.warning_classes import AccumulationWarning

Batch = TypeVar("Batch")
Step = Callable[[Batch], torch.Tensor]
Split = Callable[[Batch, int], Sequence[Batch]]


class MicroBatchWarning(UserWarning):
    """Memory ran out, and from now on a batch goes through in smaller pieces."""


def micro_batched(
    step: Step[Batch],
    model: nn.Module | Sequence[nn.Module],
    *,
    start: int | str | Path | None = None,
    halve: bool = True,
    items: Callable[[Batch], Any] | None = None,
    reduction: Reduction = "mean",
    scaler: GradScaler | None = None,
    split: Split[Batch] | None = None,
) -> MicroBatched[Batch]:
    """Run forward and backward for a batch in as few pieces as memory allows, with the gradient of the whole batch.

        train_on = micro_batched(lambda batch: loss_of(model(batch)), model, start="fit.json")

        for batch in loader:
            optimizer.zero_grad()
            loss = train_on(batch)
            optimizer.step()

    `step` computes the loss of any part of a batch, and nothing else: the backward pass runs here, and clipping, the
    optimizer and the schedule stay in your loop. It begins with the whole batch, or `start` samples: a number, or a
    search that `dryfit fit --output` saved. When memory runs out, the gradients and BatchNorm statistics of the attempt
    are dropped, what its error holds is freed, and the whole batch is done anew in pieces of half the size; so each
    sample counts once. That size stays for the batches after it (`train_on.micro_batch`), and a `MicroBatchWarning`
    says so. `step` may see a sample more than once: count and log outside of it.

    halve: false lets the error through and keeps the size. So has a program to be for `dryfit fit` to find `start`, as
        else any size fits: `dryfit fit --output fit.json train.py --micro-batch {batch}`.
    model: every module that gets a gradient, one or several, wrapped as they are trained. Gradients that are there
        before are kept and added to, which takes their memory a second time.
    items, reduction: the loss is a mean over as many things as each piece has samples, unless `items(piece)` counts
        them (tokens that are not padding), or it is a sum (`reduction="sum"`).
    scaler: a `torch.amp.GradScaler`; its `unscale_`, `step` and `update` stay in your loop.
    split: cuts a batch of your own kind into pieces of so many samples; else the first dimension of each tensor, in
        tuples, lists, mappings and dataclasses, is samples.

    With DDP each rank finds its own size, and gradients are averaged after the last backward of all ranks instead of
    during it: no rank waits within DDP for one that ran out. A rank that cannot go on tells the others, which stop with
    a `DryfitError`. Communication hooks of DDP are not used, and collectives in `step` of your own cannot be protected.

    The gradient is that of the whole batch to rounding, but where samples see each other: BatchNorm in train mode
    normalises each piece by itself (a `BatchNormWarning` names the layers), and a contrastive loss sees fewer samples.
    Dropout draws other masks.

    Raises (when called):
        UsageError: the model is sharded by FSDP, or the batch, the loss or `start` is not what it has to be.
        the error itself: memory ran out with a single sample, or with `halve=False`; a note says what was tried.
    """
    if start is not None and not isinstance(start, (str, Path)):
        require_micro_batch(start, "start")
    require_one_of(reduction, Reduction, "reduction")
    return MicroBatched(
        step=step,
        models=modules_of(model, "micro_batched(step, model)"),
        micro_batch=largest_that_fits(start) if isinstance(start, (str, Path)) else start,
        halve=halve,
        items=items,
        reduction=reduction,
        scaler=enabled(scaler),
        split=split,
    )


class MicroBatched(Generic[Batch]):
    """A step that cuts its batch so that it fits; `micro_batched` makes it.

    `micro_batch` is how many samples go through at once, None while a whole batch does; it may be set.

    Raises (when called):
        UsageError: the model is sharded by FSDP, or the batch, the loss or `micro_batch` is not what it has to be.
    """

    def __init__(
        self,
        *,
        step: Step[Batch],
        models: tuple[nn.Module, ...],
        micro_batch: int | None,
        halve: bool,
        items: Callable[[Batch], Any] | None,
        reduction: Reduction,
        scaler: GradScaler | None,
        split: Split[Batch] | None,
    ) -> None:
        self.micro_batch = micro_batch
        self._halve = halve
        self._step, self._models, self._items, self._split = step, models, items, split
        self._reduction: Reduction = reduction
        self._scaler = scaler
        self._parameters = list({id(each): each for model in models for each in model.parameters()}.values())
        self._ranks: RankAverages | None = None
        self._has_warned_of_pieces = False

    def __call__(self, batch: Batch) -> torch.Tensor:
        """Add the batch's gradient to that of the parameters, and give its loss, without a graph."""
        ranks = self._ranks = self._ranks or RankAverages(self._models)
        ranks.begin()
        failures: list[tuple[int, Failure]] = []
        with self._gradients_aside():
            try:
                with ranks.apart():
                    loss, pieces = self._halving(batch, failures)
            except Exception:
                ranks.stop_others()
                raise
            ranks.average()
        # No earlier, as a warning can be an error, and this rank then stop where others wait for it.
        if failures and self.micro_batch:
            warnings.warn(tell_smaller(failures, self.micro_batch, len(pieces)), MicroBatchWarning, stacklevel=2)
        if len(pieces) > 1 and not self._has_warned_of_pieces:
            self._has_warned_of_pieces = True
            warn_of_batch_norms(self._models, len(pieces))
            self._warn_of_uneven_labels(pieces)
        return loss

    def _halving(self, batch: Batch, failures: list[tuple[int, Failure]]) -> tuple[torch.Tensor, list[Batch]]:
        """Attempt the batch, and where it fails attempt it again in smaller pieces."""
        while True:
            pieces = [batch] if self.micro_batch is None else self._cut(batch, self.micro_batch)
            undo = self._undoing()
            found = attempt(functools.partial(self._forward_and_backward, pieces, self._weights(pieces)))
            if isinstance(found, torch.Tensor):
                return found, pieces
            try:
                samples = self._samples(batch)
            except UsageError as error:  # it was not asked for as long as the batch was whole
                raise error from found.error
            samples = min(samples, self.micro_batch or samples)
            failures.append((samples, found))
            if found.error and (samples <= 1 or not self._halve):
                add_note(found.error, tell_end(failures))
                raise found.error
            # Outside of any `except`, within which the interpreter itself keeps the error.
            found.let_go(undo)
            self.micro_batch = samples // 2

    def _forward_and_backward(self, pieces: Sequence[Batch], weights: Sequence[float]) -> torch.Tensor:
        total: torch.Tensor | None = None
        for piece, weight in zip(pieces, weights, strict=True):
            if weight == 0.0:
                continue  # a mean over no items is not a number
            loss = require_loss(self._step(piece), "the step")
            if total is None and any(parameter.grad is not None for parameter in self._parameters):
                raise UsageError(
                    "The step has run a backward pass of its own. Return the loss, and leave its backward to "
                    "micro_batched, which weighs it by the size of the piece."
                )
            share = loss if weight == 1.0 else loss * weight
            (share if self._scaler is None else self._scaler.scale(share)).backward()  # type: ignore[no-untyped-call]
            total = share.detach() if total is None else total + share.detach()
            del loss, share  # or the graph's ends would be alive during the next forward
        assert total is not None
        return total

    def _cut(self, batch: Batch, size: int) -> list[Batch]:
        require_micro_batch(size)
        samples = self._samples(batch)
        if size >= samples:
            return [batch]
        if self._split is None:
            return splitting.split(batch, size)
        pieces = list(self._split(batch, size))
        if len(pieces) != math.ceil(samples / size):
            raise UsageError(
                f"split(batch, {size}) gave {len(pieces)} pieces of {samples} samples, and {math.ceil(samples / size)} "
                f"were expected: all have {size} samples, but for the last one, which has the rest."
            )
        return pieces

    def _samples(self, batch: Batch) -> int:
        return rows_of(batch) if self._split is None else len(self._split(batch, 1))

    def _weights(self, pieces: Sequence[Batch]) -> list[float]:
        """What part of the batch's loss the loss of each piece is."""
        if len(pieces) == 1 or self._reduction == "sum":
            return [1.0] * len(pieces)
        if self._items is None:
            counts = [float(self._samples(piece)) for piece in pieces]
        else:
            counts = [count_items(self._items, piece, f"piece {at}") for at, piece in enumerate(pieces, start=1)]
        total = math.fsum(counts)
        # Without a single item the batch's loss is what the step makes of that, in pieces as in one.
        return [count / total for count in counts] if total else [1 / len(pieces)] * len(pieces)

    def _undoing(self) -> Callable[[], None]:
        """What brings gradients and statistics back to where they are now."""
        statistics = [
            (buffer, buffer.clone())
            for model in self._models
            for layer in batch_norms_in_train_mode(model).values()
            for buffer in layer.buffers()
        ]

        def drop() -> None:
            for parameter in self._parameters:
                parameter.grad = None
            with torch.no_grad():
                for buffer, value in statistics:
                    buffer.copy_(value)

        return drop

    @contextmanager
    def _gradients_aside(self) -> Iterator[None]:
        """Keep gradients from before apart, so that those of a failed attempt can be dropped."""
        kept = [(parameter, parameter.grad) for parameter in self._parameters if parameter.grad is not None]
        for parameter, _ in kept:
            parameter.grad = None
        try:
            yield
        except BaseException:
            for parameter in self._parameters:
                parameter.grad = None
            for parameter, gradient in kept:
                parameter.grad = gradient
            raise
        for parameter, gradient in kept:  # into the tensor that was there, which may be a view of a buffer of someone's
            if parameter.grad is not None:
                gradient += parameter.grad
            parameter.grad = gradient

    def _warn_of_uneven_labels(self, pieces: Sequence[Batch]) -> None:
        if self._items is not None or self._reduction == "sum":
            return
        size = self._samples(pieces[0])
        if why := uneven([piece for piece in pieces if self._samples(piece) == size]):
            warnings.warn(
                f"The losses of a batch's pieces count by their samples, and {why}. "
                f"Where the loss is a mean over tokens, give items=lambda piece: (piece['labels'] != -100).sum().",
                AccumulationWarning,
                stacklevel=3,
            )

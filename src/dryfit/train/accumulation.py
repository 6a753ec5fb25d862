"""Gradient accumulation that equals the large batch: the object that owns the windows."""

from __future__ import annotations

import math
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Generic, TypeVar

import torch.distributed
from torch import nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from dryfit.errors import UsageError
from dryfit.train.agreement import Agreed, Share, agree
from dryfit.train.batch_norms import warn_of_batch_norms
from dryfit.train.fp32_gradients import Fp32Gradients
from dryfit.train.given import enabled, modules_of, optimizers_of, schedulers_of
from dryfit.train.normalising import Reduction, leading_rows, uneven
from dryfit.train.reading import Reading
from dryfit.train.requirements import Last, require_sense
from dryfit.train.stepping import Stepper, parameters_of
from dryfit.train.synchronising import (
    Sync,
    find_wrappers,
    groups_of_mesh,
    groups_that_average,
    unsharded_gradient_bytes,
)
from dryfit.train.warning_classes import AccumulationWarning
from dryfit.train.window import Window
from dryfit.units import format_bytes

Batch = TypeVar("Batch")


def accumulate(
    loader: Iterable[Batch],
    model: nn.Module | Sequence[nn.Module],
    optimizer: Optimizer | Sequence[Optimizer],
    *,
    steps: int,
    items: Callable[[Batch], Any] | None = None,
    reduction: Reduction = "mean",
    last: Last = "step",
    clip_norm: float | None = None,
    scaler: GradScaler | None = None,
    scheduler: Any = None,
    effective: int | None = None,
    sync: Sync = "auto",
    group: Any = None,
    fp32_gradients: bool = False,
) -> Accumulation[Batch]:
    """Train with `steps` micro-batches per optimizer step, with the gradient that one batch of them all would have.

        for window in accumulate(loader, model, optimizer, steps=4, clip_norm=1.0):
            for batch in window:
                window.backward(loss_of(model(batch)))
            window.step()

    The loop has no `zero_grad`, no division, no `no_sync`, no clipping and no `scaler` of its own. For several epochs,
    go through one such object once per epoch.

    loss: by default each micro-batch's loss is a mean over as many things as the others'. Where that number differs
        (tokens that are not padding, boxes, rows of a short last batch), `items(batch)` counts it, and micro-batches
        weigh by it, over the window and all ranks. A micro-batch without items is passed over. With `reduction="sum"`
        losses are sums: they are divided by the window's items, or by nothing where none are counted.
    last: what to do with fewer than `steps` micro-batches at the end: "step" with what is there, "drop" them, or
        "carry" them into this object's next epoch.
    clip_norm: the largest norm of the window's whole gradient; `math.inf` only measures `window.gradient_norm`.
    scaler, scheduler: a `torch.amp.GradScaler`; one or several schedulers that count optimizer steps. A step that the
        scaler skips is no step of the schedule.
    effective: the samples per optimizer step that you mean; refused unless micro-batch x `steps` x ranks is that.
    sync: when gradients are exchanged between ranks. "auto" is after the last micro-batch for DDP (after each with
        `static_graph=True`, which no_sync breaks), and after each for FSDP, which else keeps every gradient unsharded
        ("last"; `describe()` says how many bytes).
    group: a process group or DeviceMesh over which something averages the gradients; found by itself for DDP and FSDP.
    fp32_gradients: sum the gradients of bf16 parameters in fp32 and round once, before the step. Takes 2 bytes more per
        such parameter, and with DDP exchanges gradients in fp32, after the last backward.

    A window's micro-batches are read from the loader before its first forward, so keep them on the host. Between
    windows nothing is read ahead. All ranks take equally many micro-batches: a window has the fewest that any rank has
    left, and when one has none the epoch ends on all, with an `AccumulationWarning` that says what is left where.
    Warns of BatchNorm in train mode (`BatchNormWarning`), which no accumulation makes equal to the large batch.

    Raises:
        UsageError: the arguments do not go together, or the loop does not do what a window needs; the message says
            what to change.
    """
    models = modules_of(model, "accumulate(loader, model, optimizer, steps=...)")
    optimizers = optimizers_of(optimizer)
    stepper = Stepper(
        optimizers=optimizers,
        schedulers=schedulers_of(scheduler),
        scaler=enabled(scaler),
        clip_norm=clip_norm,
        wrappers=find_wrappers(models),
        fp32=Fp32Gradients(partial(parameters_of, optimizers)) if fp32_gradients else None,
    )
    require_sense(stepper, models, steps=steps, reduction=reduction, last=last, sync=sync, group=group)
    return Accumulation(
        loader=loader,
        models=models,
        stepper=stepper,
        steps=steps,
        items=items,
        reduction=reduction,
        last=last,
        effective=effective,
        sync=sync,
        group=group,
    )


class Accumulation(Generic[Batch]):
    """The windows of a loader; `accumulate` makes it, and going through it once is one epoch.

    `carried` is how many micro-batches wait for the next epoch, with `last="carry"`.
    """

    def __init__(
        self,
        *,
        loader: Iterable[Batch],
        models: tuple[nn.Module, ...],
        stepper: Stepper,
        steps: int,
        items: Callable[[Batch], Any] | None,
        reduction: Reduction,
        last: Last,
        effective: int | None,
        sync: Sync,
        group: Any,
    ) -> None:
        self._loader = loader
        self._models = models
        self._stepper = stepper
        self._steps = steps
        self._items = items
        self._reduction: Reduction = reduction
        self._last: Last = last
        self._effective = effective
        self._sync: Sync = sync
        self._group = group
        self._waiting: deque[tuple[Batch, float]] = deque()
        self._open = ExitStack()  # what the loop under way holds; one that an error has left may still hold it
        self._window: Window[Batch] | None = None
        self._checked = self._warned = False

    @property
    def carried(self) -> int:
        """How many micro-batches wait for the next epoch."""
        return len(self._waiting)

    def __len__(self) -> int:
        """How many windows an epoch has, at most; for progress bars and schedules. Needs a loader that has a length."""
        ready = self.carried + len(self._loader)  # type: ignore[arg-type]
        return math.ceil(ready / self._steps) if self._last == "step" else ready // self._steps

    def describe(self) -> str:
        """What one optimizer step is made of, and what that costs, in sentences."""
        groups = self._groups()
        world = math.prod(torch.distributed.get_world_size(group) for group in groups)
        micro = getattr(self._loader, "batch_size", None)
        lines = [f"{self._steps} micro-batches on {world} {'rank' if world == 1 else 'ranks'} make one optimizer step"]
        if isinstance(micro, int):
            lines[0] += f": {micro} x {self._steps} x {world} = {micro * self._steps * world} samples"
        wrappers, fp32 = self._stepper.wrappers, self._stepper.fp32
        if wrappers.has_static_graph:
            lines.append(
                "DDP exchanges gradients after each micro-batch, as no_sync does not work with static_graph=True"
            )
        if wrappers.sharded:
            price = format_bytes(unsharded_gradient_bytes(wrappers))
            lines.append(
                f"Gradients stay unsharded until the last micro-batch, {price} on each card"
                if self._sync == "last"
                else f'FSDP exchanges gradients after each micro-batch; sync="last" would do so once per window, and '
                f"keep {price} of unsharded gradients on each card"
            )
        if fp32:
            lines.append(f"Gradients are summed in fp32, {format_bytes(fp32.sum_bytes)} during a window")
        return ". ".join(lines) + "."

    def __iter__(self) -> Iterator[Window[Batch]]:
        self._open.close()
        if self._last != "carry":
            self._waiting.clear()  # of ranks that had more, in an epoch that the loop has left
        with ExitStack() as self._open:
            self._open.enter_context(self._stepper.watching())
            self._open.callback(self._release)
            warn_of_batch_norms(() if self._checked else self._models, self._steps)
            groups = self._groups()
            reading = Reading(self._loader, self._items)
            index = 0
            while agreed := self._next(reading, groups, is_first=index == 0):
                batches = [self._waiting.popleft() for _ in range(agreed.micro_batches)]
                window = Window(
                    batches,
                    index=index,
                    items=agreed.items,
                    counted=self._items is not None,
                    world=1 if self._stepper.fp32 and self._stepper.wrappers.ddp else agreed.world,
                    reduction=self._reduction,
                    sync=self._sync,
                    stepper=self._stepper,
                )
                del batches  # the window lets go of each as the loop goes on
                self._window = window
                window.require_no_gradients()
                yield window
                window.require_finished()
                index += 1

    def _release(self) -> None:
        if self._window is not None:
            self._window.release()
            self._window = None

    def _next(self, reading: Reading[Batch], groups: Sequence[Any], *, is_first: bool) -> Agreed | None:
        try:
            reading.fill(self._waiting, self._steps)
            self._check_first(math.prod(torch.distributed.get_world_size(group) for group in groups))
        except Exception as error:
            self._waiting.clear()  # an epoch begun again reads them again
            if groups:
                agree(Share(items=(), failure=f"{type(error).__name__}: {error}"), groups)
            raise
        agreed = agree(Share(items=tuple(items for _, items in self._waiting)), groups)
        if agreed.micro_batches == self._steps or (agreed.micro_batches and self._last == "step"):
            return agreed
        self._end(agreed, reading, is_first=is_first)
        return None

    def _check_first(self, world: int) -> None:
        batches = [batch for batch, _ in self._waiting]
        if self._items is None and self._reduction == "mean" and not self._warned and (found := uneven(batches)):
            self._warned = True
            warnings.warn(
                f"In one window {found}, and no items are counted, so the mean loss of each micro-batch weighs the "
                f"same. One large batch would weigh them by what each mean is over: give accumulate(..., items=...), "
                f"which counts that in a batch.",
                AccumulationWarning,
                stacklevel=4,
            )
        if self._checked or not batches:
            return
        self._checked = True
        micro = getattr(self._loader, "batch_size", None)
        micro = micro if isinstance(micro, int) else leading_rows(batches[0])
        if self._effective is not None and micro is not None and micro * self._steps * world != self._effective:
            raise UsageError(
                f"effective={self._effective} was asked for, and micro-batches of {micro} x {self._steps} steps x "
                f"{world} ranks make {micro * self._steps * world}. Change one of them."
            )

    def _end(self, agreed: Agreed, reading: Reading[Batch], *, is_first: bool) -> None:
        if agreed.most_ready > (0 if self._last == "step" else self._steps - 1):
            fate = "are kept for the next epoch" if self._last == "carry" else "are left out"
            warnings.warn(
                f"The ranks have different numbers of micro-batches, so the epoch ends on all of them here, after "
                f"{reading.read} read on this rank: of those for the next window {agreed.say_ready()}. They {fate}, "
                f"and what more a loader has is not read. Give each rank as many, for example by DistributedSampler.",
                AccumulationWarning,
                stacklevel=4,
            )
        elif is_first and (not reading.read or self._last == "drop"):
            what = f"gave {reading.read or 'no'} micro-batch{'es' if reading.read > 1 else ''}"
            warnings.warn(
                f"The loader {what}, fewer than the steps={self._steps} of a window, and last='drop' leaves them out, "
                f"so there was no optimizer step in this epoch."
                if reading.read
                else f"The loader {what}, so there was no optimizer step in this epoch. A generator or an iterator "
                f"gives what it has once: give a loader that begins anew, such as a DataLoader.",
                AccumulationWarning,
                stacklevel=4,
            )
        if self._last != "carry":
            self._waiting.clear()

    def _groups(self) -> tuple[Any, ...]:
        if self._group is not None:
            return groups_of_mesh(self._group) if hasattr(self._group, "get_group") else (self._group,)
        groups = groups_that_average(self._stepper.wrappers)
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        if not groups and not self._checked and distributed and torch.distributed.get_world_size() > 1:
            warnings.warn(
                f"There are {torch.distributed.get_world_size()} ranks, and the model is in neither DDP nor FSDP, so "
                f"each rank is taken to train by itself. If something else averages its gradients, give "
                f"accumulate(..., group=torch.distributed.group.WORLD).",
                AccumulationWarning,
                stacklevel=3,
            )
        return groups

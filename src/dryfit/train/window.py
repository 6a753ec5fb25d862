"""One window: the micro-batches whose gradients make one optimizer step."""

from __future__ import annotations

import math
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any, Generic, TypeVar

import torch

from dryfit.errors import UsageError
from dryfit.train.losses import divided_by_hand, require_loss
from dryfit.train.normalising import Reduction, weight
from dryfit.train.stepping import Stepper
from dryfit.train.synchronising import Sync, synchronising
from dryfit.train.torch_private import is_unscaled, version_of
from dryfit.train.warning_classes import AccumulationWarning

Batch = TypeVar("Batch")


class Window(Generic[Batch]):
    """The micro-batches of one optimizer step; `accumulate` makes it.

        for batch in window:
            window.backward(loss_of(model(batch)))
        window.step()

    `index` counts windows from 0. `items` is how many items all ranks' micro-batches of this window have together, and
    how many micro-batches there are where no items are counted. After `step()`, `gradient_norm` is the norm of the
    gradient before clipping (a tensor; None without `clip_norm`), and `stepped` is false if a GradScaler has skipped a
    step.
    """

    def __init__(
        self,
        batches: Iterable[tuple[Batch, float]],
        *,
        index: int,
        items: float,
        counted: bool,
        world: int,
        reduction: Reduction,
        sync: Sync,
        stepper: Stepper,
    ) -> None:
        self.index = index
        self.items = items
        self.gradient_norm: torch.Tensor | None = None
        self.stepped = False
        self._waiting = deque(batches)
        self._size = len(self._waiting)
        # A sum of which no items are counted is divided by nothing.
        self._all_items = items if counted or reduction == "mean" else 1.0
        self._own_items = math.fsum(items for _, items in self._waiting) if self._all_items == items else 1.0
        self._world = world
        self._reduction = reduction
        self._sync = sync
        self._stepper = stepper
        self._walked = self._finished = False
        self._given = self._done = 0  # micro-batches handed to the loop, and those that had their backward
        self._weight = self._own_weight = 0.0
        self._loss: torch.Tensor | None = None
        self._gradient_of: Any = None  # a parameter that has a gradient since the last backward
        self._version = 0  # of that gradient, which counts changes in place
        self._holding = ExitStack()

    def __len__(self) -> int:
        """How many micro-batches this rank has in the window."""
        return self._size

    @property
    def loss(self) -> torch.Tensor:
        """The loss of this rank's micro-batches so far, weighted as their gradients are; a tensor without a graph.

        After the last backward it is what the loss of all of them in one batch would be.

        Raises:
            UsageError: no micro-batch has had its backward yet.
        """
        if self._loss is None:
            raise UsageError(f"Window {self.index} has no loss yet: no micro-batch has had its backward.")
        return self._loss

    def __iter__(self) -> Iterator[Batch]:
        if self._walked:
            raise UsageError(
                f"Window {self.index} was walked through already; its micro-batches are given once. Take the next one."
            )
        self._walked = True
        while self._waiting:
            batch, items = self._waiting.popleft()
            self._given += 1
            self._weight = weight(self._reduction, items, self._all_items, averaged_over=self._world)
            self._own_weight = weight(self._reduction, items, self._own_items, averaged_over=1)
            # fp32 sums are reduced by the stepper, so no backward is to exchange anything
            last = not self._waiting and not (self._stepper.fp32 and self._stepper.wrappers.ddp)
            with self._holding:
                self._holding.enter_context(synchronising(self._stepper.wrappers, last=last, sync=self._sync))
                yield batch
            if self._done < self._given:
                raise UsageError(
                    f"{self._where()} had no window.backward(loss), so the window's gradient would miss its part, and "
                    f"other ranks could wait for it. Call window.backward once for each micro-batch; leave out "
                    f"unwanted ones in the loader. An iterator that reads ahead of the loop has to go around the "
                    f"loader, not around the window."
                )

    def backward(self, loss: torch.Tensor, *, retain_graph: bool = False) -> None:
        """Weigh and scale the loss of the micro-batch at hand, and run its backward.

            window.backward(criterion(model(inputs), targets))

        The loss is what a plain loop would have: a mean (or a sum with `reduction="sum"`), neither divided nor scaled.
        `retain_graph` is `Tensor.backward`'s; it keeps the activations, so use it only where the graph is used again.

        Raises:
            UsageError: the loss is no scalar tensor with a graph, the micro-batch had its backward already, or
                gradients of earlier micro-batches are gone or were changed.
        """
        self._require_one_backward()
        require_loss(loss, self._where().lower())
        if self._reduction == "mean" and divided_by_hand(loss, self._size):
            warnings.warn(
                f"The loss is a mean divided by {self._size}, as many as there are micro-batches in the window. "
                f"window.backward divides by that itself, so the gradient would be {self._size} times too small: leave "
                f"the division out of the loop.",
                AccumulationWarning,
                stacklevel=2,
            )
        weighted = loss * self._weight
        scaler = self._stepper.scaler
        scaled = weighted if scaler is None else scaler.scale(weighted)
        scaled.backward(retain_graph=retain_graph)  # type: ignore[no-untyped-call]
        share = loss.detach() * self._own_weight
        self._loss = share if self._loss is None else self._loss + share
        self._done += 1
        if self._gradient_of is None and not self._stepper.wrappers.fsdp1:  # which moves gradients between parameters
            self._gradient_of = next((p for p in self._stepper.parameters() if p.grad is not None), None)
        if self._gradient_of is not None:
            self._version = version_of(self._gradient_of.grad)

    def step(self) -> None:
        """Clip, step, clear the gradients and advance the schedule, once for the window.

        Raises:
            UsageError: a micro-batch has not had its backward, gradients are gone, or the window was stepped already.
        """
        if self._finished:
            raise UsageError(f"window.step() was called twice for window {self.index}; call it once, after the loop.")
        if self._done < self._size:
            raise UsageError(
                f"window.step() was called when {self._done} of the {self._size} micro-batches of window {self.index} "
                f"had their backward. Call it after the loop over the window, and do not leave that loop early; "
                f"window.discard() throws a window away."
            )
        self._require_gradient_kept()
        self._finished = True
        self.gradient_norm, self.stepped = self._stepper.step()

    def discard(self) -> None:
        """Throw the window's gradients away and step nothing; on several ranks, all have to.

        if not window.loss.isfinite():
            window.discard()

        `stepped` stays false.
        """
        self._finished = True
        self._waiting.clear()
        self._stepper.clear()

    def release(self) -> None:
        """Let ranks exchange gradients again, after an error has left the loop and still holds it."""
        self._holding.close()

    def require_finished(self) -> None:
        """Refuse to go on to the next window while this one's gradients wait."""
        if not self._finished:
            raise UsageError(
                f"Window {self.index} ended without window.step(), so its gradients would run into the next window. "
                f"Call window.step() after the loop over the window, or window.discard() to throw them away."
            )

    def require_no_gradients(self) -> None:
        """Refuse gradients that were there before the window began."""
        left = sum(1 for parameter in self._stepper.parameters() if parameter.grad is not None)
        if left:
            raise UsageError(
                f"{left} parameters have gradients from before window {self.index} began, which would be added to its "
                f"own. Call optimizer.zero_grad() before the loop if they are of no use."
            )

    def _where(self) -> str:
        return f"Micro-batch {self._given} of the {self._size} in window {self.index}"

    def _require_one_backward(self) -> None:
        if self._given == 0 or self._finished:
            raise UsageError("window.backward was called outside the loop over the window: for batch in window: ...")
        if self._done == self._given:
            raise UsageError(
                f"{self._where()} had its backward already. Add up the losses of a micro-batch and call "
                f"window.backward once."
            )
        self._require_gradient_kept()
        changed = self._gradient_of is not None and version_of(self._gradient_of.grad) != self._version
        if changed or any(is_unscaled(self._stepper.scaler, each) for each in self._stepper.optimizers):
            raise UsageError(
                f"The gradients of earlier micro-batches of window {self.index} were changed after their backward: "
                f"were clip_grad_norm_, scaler.unscale_ or zero_grad(set_to_none=False) left in the loop over the "
                f"window? window.step() does that, once, after the last backward."
            )

    def _require_gradient_kept(self) -> None:
        if self._gradient_of is not None and self._gradient_of.grad is None:
            raise UsageError(
                f"The gradients of earlier micro-batches of window {self.index} are gone: was optimizer.zero_grad() "
                f"left in the loop? window.step() clears gradients, after the step."
            )

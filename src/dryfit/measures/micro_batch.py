"""Micro-batches: k smaller batches one after the other, whose gradients add up to those of the batch.

The option is how many there are: "micro-batch:4". The DataLoader that the program trains from then gives batches of a
quarter. Where the program's own words hold the batch (`{batch}`), a search writes the smaller number there, and asks
for "micro-batch:4:placed": the words hold it already, and what is left to do is to accumulate.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

from dryfit.measures.facts import Facts
from dryfit.measures.instead import instead
from dryfit.measures.measure import METHOD, NOTHING, Measure
from dryfit.measures.moments import CannotSwitchOn, Moments
from dryfit.measures.owners import owners

if TYPE_CHECKING:
    pass

_PLACED = ":placed"


def placed_options(batch: int) -> tuple[str, ...]:
    """The options for a program whose words hold its batch, the largest micro-batch first.

    >>> placed_options(12)
    ('2:placed', '4:placed', '12:placed')
    """
    return tuple(option + _PLACED for option in _counts(batch))


def micro_batches_of(option: str) -> int:
    """How many micro-batches an option asks for: what stands in the words' place of `{batch}` is the batch by this.

    >>> micro_batches_of("4"), micro_batches_of("4:placed")
    (4, 4)
    """
    return int(option.removesuffix(_PLACED))


def why_not_placed(facts: Facts) -> str:
    """As the measure's `why_not`, for a program whose words hold its batch."""
    if not facts.has_optimizer:
        return "the program makes no optimizer, so there are no gradients to accumulate"
    if facts.has_closure:
        return (
            "an optimizer is given a closure, within which forward and backward pass run; the loop over micro-batches "
            "belongs inside of it"
        )
    return ""


def _counts(batch: int) -> list[str]:
    """The divisors of a batch, each at least twice the one before, so that each takes clearly less memory."""
    counts = [1]
    for count in range(2, batch + 1):
        if batch % count == 0 and count >= 2 * counts[-1]:
            counts.append(count)
    return [str(count) for count in counts[1:]]


def _why_not(facts: Facts) -> str:
    why = why_not_placed(facts)
    if why:
        return why
    if facts.loader_samplers:
        return (
            "the DataLoader has a batch sampler of the program's own; write {batch} in place of the number that it "
            "takes on the command line, and it can be made smaller there"
        )
    if not facts.loader_batch:
        return (
            "the batch is made in the program's own code and cannot be changed from outside; write {batch} in place of "
            "the number on the command line, and it can be made smaller there"
        )
    return "the batch is a single sample already" if facts.loader_batch == 1 else ""


def _changes(facts: Facts) -> str:
    return METHOD if facts.batch_norms else NOTHING


def _switch_on(moments: Moments, option: str) -> None:
    is_placed = option.endswith(_PLACED)
    accumulation = _Accumulation(moments=moments, count=micro_batches_of(option), is_smaller=is_placed)
    _divide_losses(accumulation)
    _step_every_last_time(accumulation)
    if not is_placed:
        _make_loaders_smaller(accumulation)
    moments.after_import("transformers.training_args", lambda module: _in_transformers(accumulation, module, is_placed))
    for name in ("lightning.pytorch", "pytorch_lightning"):
        moments.after_import(f"{name}.trainer.trainer", lambda module: _in_lightning(accumulation, module))
    moments.after_import("accelerate.accelerator", lambda module: _in_accelerate(accumulation, module))


@dataclass(slots=True, kw_only=True)
class _Accumulation:
    """Where the program is: how often each optimizer has been asked to step since it did.

    `is_smaller` says that batches are micro-batches now. A framework that accumulates itself takes over from here:
    then losses are not divided, optimizers not held back, or loaders not made smaller.
    """

    moments: Moments
    count: int
    is_smaller: bool
    divides: bool = True
    holds_back: bool = True
    splits: bool = True
    asked: WeakKeyDictionary[Any, int] = field(default_factory=WeakKeyDictionary)
    stepping: WeakSet[Any] = field(default_factory=WeakSet)

    @property
    def is_on(self) -> bool:
        return self.is_smaller and self.holds_back

    def is_last(self, optimizer: Any) -> bool:
        """Whether this optimizer steps when it is asked the next time."""
        return not self.is_on or self.asked.get(optimizer, 0) + 1 == self.count

    def is_turn(self, optimizer: Any) -> bool:
        """Whether it steps now that it is asked."""
        if not self.is_last(optimizer):
            self.asked[optimizer] = self.asked.get(optimizer, 0) + 1
            return False
        if self.asked.get(optimizer):
            self.moments.acts()
        self.asked[optimizer] = 0
        return True

    def refuse_lost_gradients(self) -> None:
        for optimizer, times in self.asked.items():
            parameters = [each for group in optimizer.param_groups for each in group["params"]]
            if times and all(parameter.grad is None for parameter in parameters):
                raise CannotSwitchOn(
                    "the program sets gradients to None otherwise than by zero_grad() after every backward pass, so "
                    "that they cannot add up; call optimizer.zero_grad() in place of that."
                )


def _divide_losses(state: _Accumulation) -> None:
    """As by hand: `(loss / k).backward()`, and `scaler.scale(loss / k).backward()`."""
    import torch

    backward, scale = torch.autograd.backward, torch.amp.GradScaler.scale
    was_scaled = False

    def divided(loss: Any) -> Any:
        if not isinstance(loss, torch.Tensor):
            return loss if not isinstance(loss, (list, tuple)) else type(loss)(map(divided, loss))
        return loss / state.count if loss.numel() == 1 else loss

    @functools.wraps(backward)
    def backward_of_part(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
        nonlocal was_scaled
        if not (state.is_smaller and state.divides):
            return backward(tensors, grad_tensors, *args, **kwargs)
        if state.holds_back:
            state.moments.guard(state.refuse_lost_gradients)()
        # Gradients that are given belong to a graph that goes on elsewhere.
        is_divided, was_scaled = was_scaled or grad_tensors is not None, False
        return backward(tensors if is_divided else divided(tensors), grad_tensors, *args, **kwargs)

    @functools.wraps(scale)
    def scale_of_part(self: Any, outputs: Any) -> Any:
        nonlocal was_scaled
        if not (state.is_smaller and state.divides):
            return scale(self, outputs)
        was_scaled = True
        return scale(self, divided(outputs))

    torch.autograd.backward = backward_of_part
    torch.amp.GradScaler.scale = scale_of_part  # type: ignore[method-assign]


def _step_every_last_time(state: _Accumulation) -> None:
    """Of k calls of `step`, and all that belongs to one, the last does something; so does the `zero_grad` after it."""
    import torch

    def held_back(step: Callable[..., Any]) -> Callable[..., Any]:
        def step_every_last_time(self: Any, *args: Any, **kwargs: Any) -> Any:
            if self not in state.stepping and not state.is_turn(self):
                return None
            return step(self, *args, **kwargs)

        # As it is, but for `__wrapped__`, by which older Dynamo takes hooks off.
        functools.update_wrapper(step_every_last_time, step)
        del step_every_last_time.__wrapped__  # type: ignore[attr-defined]
        step_every_last_time.__signature__ = inspect.signature(step)  # type: ignore[attr-defined]
        step_every_last_time.is_held_back = True  # type: ignore[attr-defined]
        return step_every_last_time

    def hold_back(optimizer: Any) -> None:
        state.asked[optimizer] = 0
        kind = type(optimizer)
        if not getattr(kind.step, "is_held_back", False):
            kind.step = held_back(kind.step)

    def scaler_step(real: Callable[..., Any], self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if not state.is_turn(optimizer):
            return None
        state.stepping.add(optimizer)
        try:
            return real(self, optimizer, *args, **kwargs)
        finally:
            state.stepping.discard(optimizer)

    def unscale(real: Callable[..., Any], self: Any, optimizer: Any) -> Any:
        return real(self, optimizer) if state.is_last(optimizer) else None

    def zero_grad(real: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
        of = [self] if self in state.asked else list(state.asked)
        return None if state.is_on and any(state.asked[each] for each in of) else real(self, *args, **kwargs)

    def update(real: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
        return None if state.is_on and any(state.asked.values()) else real(self, *args, **kwargs)

    def clip(real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if state.asked and not any(state.is_last(optimizer) for optimizer in state.asked):
            return torch.zeros(())  # a norm for the program to print, which takes nothing of the card
        return real(*args, **kwargs)

    state.moments.when_optimizer_was_made(hold_back)
    for owner, name, do in (
        (torch.amp.GradScaler, "step", scaler_step),
        (torch.amp.GradScaler, "unscale_", unscale),
        (torch.amp.GradScaler, "update", update),
        (torch.optim.Optimizer, "zero_grad", zero_grad),
        (torch.nn.Module, "zero_grad", zero_grad),
        (torch.nn.utils, "clip_grad_norm_", clip),
        (torch.nn.utils, "clip_grad_value_", clip),
    ):
        instead(owner, name, do)


def _make_loaders_smaller(state: _Accumulation) -> None:
    """Loaders that are trained from; those that shuffle from the start, so that their lengths are right."""
    from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler

    whole: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
    trained_from: WeakSet[Any] = WeakSet()

    def make(loader: DataLoader[Any], sampler: BatchSampler, *, small: bool) -> None:
        batch = whole.setdefault(sampler, sampler.batch_size)
        if small and batch % state.count:
            raise CannotSwitchOn(
                f"the DataLoader's batch of {batch} cannot be cut into {state.count} equal parts; choose one of "
                f"{', '.join(_counts(batch)) or 'none'}."
            )
        sampler.batch_size = batch // state.count if small else batch
        if loader.batch_size is not None:
            loader.__dict__["batch_size"] = sampler.batch_size  # DataLoader's own `__setattr__` allows no change
        state.is_smaller = state.is_smaller or small

    def sampler_of(loader: Any) -> BatchSampler | None:
        sampler = loader.batch_sampler
        return sampler if state.splits and type(sampler) is BatchSampler else None

    def made(real: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> None:
        real(self, *args, **kwargs)
        sampler = sampler_of(self)
        if sampler is None or isinstance(self.dataset, IterableDataset):
            return
        shuffles = not isinstance(sampler.sampler, SequentialSampler)
        if shuffles and whole.get(sampler, sampler.batch_size) % state.count == 0:
            make(self, sampler, small=True)

    def iterated(real: Callable[..., Any], self: Any) -> Any:
        sampler = sampler_of(self)
        if sampler is not None:
            if _trains(state):
                trained_from.add(sampler)
            state.moments.guard(make)(self, sampler, small=sampler in trained_from)
        return real(self)

    instead(DataLoader, "__init__", made)
    instead(DataLoader, "__iter__", iterated)


def _trains(state: _Accumulation) -> bool:
    """Whether the program is about to train, as far as can be told: not without gradients, or in evaluation mode."""
    import torch

    if not torch.is_grad_enabled():
        return False
    trained = [each for optimizer in state.asked for group in optimizer.param_groups for each in group["params"]]
    models = owners(trained)
    return not models or any(model.training for model in models)


def _in_transformers(state: _Accumulation, module: Any, is_placed: bool) -> None:
    def post_init(real: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
        state.divides = state.holds_back = state.splits = False
        if not isinstance(self.gradient_accumulation_steps, _Written):
            state.moments.guard(write)(self)
            state.moments.acts()
        return real(self, *args, **kwargs)

    def write(arguments: Any) -> None:
        batch = arguments.per_device_train_batch_size
        if not is_placed:
            if batch % state.count:
                raise CannotSwitchOn(
                    f"per_device_train_batch_size is {batch}, which cannot be cut into {state.count} equal parts; "
                    f"choose one of {', '.join(_counts(batch)) or 'none'}."
                )
            arguments.per_device_train_batch_size = batch // state.count
        arguments.gradient_accumulation_steps = _Written(arguments.gradient_accumulation_steps * state.count)

    instead(module.TrainingArguments, "__post_init__", post_init)


class _Written(int):
    """A number that has been multiplied already, by which a copy of its `TrainingArguments` is told."""


def _in_lightning(state: _Accumulation, module: Any) -> None:
    def fit(real: Callable[..., Any], self: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(model, "automatic_optimization", False):  # else the program steps by itself, as in plain PyTorch
            state.divides = state.holds_back = False
            self.accumulate_grad_batches *= state.count
            state.moments.acts()
        return real(self, model, *args, **kwargs)

    instead(module.Trainer, "fit", fit)


def _in_accelerate(state: _Accumulation, module: Any) -> None:
    def made(real: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> None:
        real(self, *args, **kwargs)
        if state.holds_back:  # else transformers' Trainer has been told, and tells it
            state.divides = False  # `Accelerator.backward` does
            self.gradient_accumulation_steps *= state.count

    def accumulate(real: Callable[..., Any], self: Any, *models: Any) -> Any:
        if state.holds_back:
            state.holds_back = False
            state.moments.acts()
        return real(self, *models)

    instead(module.Accelerator, "__init__", made)
    instead(module.Accelerator, "accumulate", accumulate)


def _options(facts: Facts) -> Sequence[str]:
    return _counts(facts.loader_batch)


MEASURES = (
    Measure(
        name="micro-batch",
        title="micro-batches",
        what="Each step runs several smaller batches one after the other and adds up their gradients; activations are "
        "those of one of them, and the effective batch stays the same.",
        group="batch",
        why_not=_why_not,
        changes=_changes,
        options=_options,
        switch_on=_switch_on,
        not_counted="as many times more kernels, each smaller, so that a step can take longer than its FLOPs say; "
        "a loss that compares the samples of a batch with each other (contrastive) sees those of a micro-batch alone",
        snippets={
            "pytorch": """
loader = DataLoader(dataset, batch_size=batch // {option}, shuffle=True)
for number, batch in enumerate(loader, start=1):
    loss = loss_of(model, batch)
    (loss / {option}).backward()
    if number % {option} == 0:
        optimizer.step()
        optimizer.zero_grad()
""",
            "transformers": """
TrainingArguments(
    ...,
    per_device_train_batch_size=batch // {option},
    gradient_accumulation_steps={option},
)
""",
            "lightning": """
loader = DataLoader(dataset, batch_size=batch // {option}, shuffle=True)
Trainer(..., accumulate_grad_batches={option})
""",
            "accelerate": """
accelerator = Accelerator(..., gradient_accumulation_steps={option})
loader = DataLoader(dataset, batch_size=batch // {option}, shuffle=True)
for batch in loader:
    with accelerator.accumulate(model):
        accelerator.backward(loss_of(model, batch))
        optimizer.step()
        optimizer.zero_grad()
""",
        },
    ),
)

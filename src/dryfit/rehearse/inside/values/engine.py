"""Follows the operators of the program, and computes the small known ones on the CPU, over the same bytes."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from dryfit.rehearse.assumptions import Assumption
from dryfit.rehearse.inside import torch_private
from dryfit.rehearse.inside.values import host
from dryfit.rehearse.inside.values.assumed import Assumed
from dryfit.rehearse.inside.values.inventions import Inventions, Key, is_of_a_text
from dryfit.rehearse.inside.values.known import (
    SMALL_BYTES,
    Choice,
    KnownStorages,
    fills_its_storage,
    most_bytes,
    storage_identity,
)
from dryfit.rehearse.inside.values.operators import Operator, with_tensors_for_numbers

Kernel = Callable[..., Any]

TINY_ELEMENTS = 64
"""Unknown results up to this many elements get a stand-in at once, so that what is derived from them is consistent:
a loss of 1.0 is finite, larger than 0 and has the logarithm 0."""

_FLOATING_BYTES = 1 << 18
# Numbers that decide something are reductions, scores, boxes; tables larger than this (of sines, of masks to add) are
# not, and filling them takes milliseconds in each step.

_LOOKED_AT_BYTES = 16 << 20
# A small storage may show its bytes any number of times, as `expand` does: going through more than this takes a
# thread of the CPU longer than a step.

_MANY_TENSORS = 64
# An optimiser's list of step counters is known and small, and nobody reads it: not worth milliseconds in each step.

_in_backward = torch_private.in_backward()


class _PerThread(threading.local):
    """What an operator tells those it calls itself: how many elements to keep, what the next numbers read are."""

    def __init__(self) -> None:
        self.kept: int | None = None
        self.numbers: list[Any] = []
        self.inside: str = ""
        self.is_listed = False


class Engine:
    """The state all followed operators share.

    `answer(n)` makes `n` the next integer that CUDA code reads from the device, `forget()` withdraws such answers.
    `failures` counts the operators whose CPU kernel refused, by name: what they gave is unknown. `turns` has, by the
    line, what a loop was answered last and how often in a row.
    """

    def __init__(
        self, answer: Callable[[int], None], forget: Callable[[], None], assumptions: Sequence[Assumption] = ()
    ) -> None:
        self.known = KnownStorages()
        self.inventions = Inventions()
        self.assumed = Assumed(assumptions)
        self.turns: dict[Any, tuple[Any, int]] = {}
        self.failures: Counter[str] = Counter()
        self.hints = _PerThread()
        self._answer, self._forget = answer, forget

    # --- any operator ---------------------------------------------------------------------------------------------

    def computed(self, operator: Operator, kernel: Kernel, args: Any, kwargs: Any) -> Any:
        """Run an operator all of whose inputs are known: its CUDA kernel, then the CPU over the same bytes."""
        inputs = list(self._inputs(operator, args, kwargs))
        assumed = any(map(self.known.is_assumed, inputs))
        result = kernel(*with_tensors_for_numbers(operator, args), **kwargs)
        changed = list(host.cuda_tensors(operator.targets(args, kwargs) if operator.written else result))
        if not changed:
            return result
        choice = self.known.choice_in([*inputs, *changed] if operator.written else inputs)
        if self._worth_computing(operator, inputs, changed, choice) and self._run(operator, args, kwargs, result):
            for tensor in changed:
                if self._becomes_known(operator, tensor, choice):
                    self.known.remember(tensor, assumed=assumed or self._stays_assumed(operator, tensor), choice=choice)
        elif operator.written:
            for tensor in changed:
                self.known.forget(tensor)
        return result

    def overwritten(self, operator: Operator, args: Any, kwargs: Any) -> None:
        """Note that an operator with an unknown input wrote its targets."""
        for tensor in host.cuda_tensors(operator.targets(args, kwargs)):
            self.known.forget(tensor)

    def stand_in(self, results: Any, value: torch.Tensor | None = None) -> None:
        """Fill the tiny ones of unknown results: with `value`, else 1 for floating point, 0 and False for the rest."""
        for tensor in results if isinstance(results, tuple) else (results,):
            if isinstance(tensor, torch.Tensor) and tensor.numel() <= TINY_ELEMENTS and tensor.is_cuda:
                if torch_private.is_capturing() or not _may_be_known(tensor) or not fills_its_storage(tensor):
                    continue
                with torch_private.without_torch_function(), torch_private.below_autograd():
                    host.on_host(tensor).copy_(_standing_in(tensor) if value is None else value)
                self.known.remember(tensor, assumed=True)

    def stand_in_comparison(self, operator: Operator, args: Any, result: torch.Tensor) -> None:
        """Fill the tiny result of a comparison with that of what stands in for the unknown: a gradient's norm, which
        has no stand-in of its own, equals itself and no infinity, and so is finite."""
        try:
            with torch_private.without_torch_function(), torch_private.below_autograd():
                value = operator.overload(*map(self._seen, args))
        except (RuntimeError, NotImplementedError):  # the CPU compares fewer types
            value = None
        self.stand_in(result, value)

    def is_true(self, *values: Any) -> bool:
        """Whether the card's tensors among the arguments all hold true values, which a captured graph's do not."""
        return all(map(self.known.is_true, host.cuda_tensors(values))) and not torch_private.is_capturing()

    def is_known(self, tensor: torch.Tensor) -> bool:
        """Whether the bytes of `tensor` are true or a stand-in, rather than anything at all."""
        return storage_identity(tensor) in self.known.references or tensor.numel() == 0

    def may_vouch_for(self, tensor: torch.Tensor) -> bool:
        """Whether a `tensor` that was written in full makes its storage known."""
        if storage_identity(tensor) in self.known.references:
            return True
        return _may_be_known(tensor) and tensor.nbytes <= SMALL_BYTES and fills_its_storage(tensor)

    def written_by_policy(self, card: torch.Tensor, value: torch.Tensor, choice: Choice | None = None) -> None:
        """Put a value that was chosen into a small tensor of the card, which is known from then on."""
        if fills_its_storage(card, most_bytes(choice)) and not torch_private.is_capturing():
            with torch_private.without_torch_function(), torch_private.below_autograd():
                host.on_host(card).copy_(value)
            self.known.remember(card, assumed=False, choice=choice)
        else:
            self.known.forget(card)

    def attempt(self, operator: Operator, args: Any, kwargs: Any) -> Any:
        """What the operator gives on the CPU; None if it cannot, which counts as a failure, or if that is too much."""
        tensors = list(host.cuda_tensors(args))
        if any(tensor.nbytes > _looked_at_bytes(self.known.choice_in(tensors)) for tensor in tensors):
            return None
        try:
            with torch_private.without_torch_function(), torch_private.below_autograd():
                return host.compute(operator, args, kwargs)
        except (RuntimeError, NotImplementedError, ValueError, IndexError, TypeError):
            self.failures[operator.name] += 1
            return None

    @contextmanager
    def answering(self, count: int) -> Iterator[None]:
        """Let the next integer read from the device be `count`."""
        self._answer(count)
        try:
            yield
        finally:
            self._forget()

    @contextmanager
    def telling(
        self, inside: str, *, kept: int | None = None, numbers: tuple[Any, ...] = (), listed: bool = False
    ) -> Iterator[None]:
        """While operator `inside` runs, let unknown masks keep `kept` elements and unknown numbers be `numbers`.

        With `listed`, what is asked meanwhile is listed already.
        """
        hints = self.hints
        before = hints.inside, hints.kept, hints.numbers, hints.is_listed
        hints.inside, hints.kept, hints.numbers, hints.is_listed = inside, kept, list(numbers), listed
        try:
            yield
        finally:
            hints.inside, hints.kept, hints.numbers, hints.is_listed = before

    def record(self, what: str, answer: str, *, decides_size: bool, kind: str = "", size: int = 0) -> Key | None:
        """List an invented value, in the name of the operator the program called; its key, if that was not done."""
        if self.hints.is_listed or (decides_size and is_of_a_text()):
            return None
        inside = self.hints.inside
        return self.inventions.record(
            inside or what, answer, decides_size=decides_size or bool(inside), kind=kind, size=size
        )

    def setting(self, kind: str) -> Assumption | None:
        """What the person told us to assume of a kind of value at the line that is running."""
        program, library = self.inventions.places() if self.assumed.has_places else (None, None)
        return self.assumed.setting(kind, (library, program))

    def sizes_follow_from(self, *values: Any) -> None:
        """Note that sizes follow from these known values, which may follow from a choice of ours."""
        choice = self.known.choice_in(host.cuda_tensors(values))
        if choice is not None and choice.key is not None:
            self.inventions.decided_a_size(choice.key)

    # --- parts ----------------------------------------------------------------------------------------------------

    def _seen(self, value: Any) -> Any:
        """An argument as the CPU sees it, with a stand-in for what is not known."""
        if not isinstance(value, torch.Tensor) or not value.is_cuda:
            return value
        return host.on_host(value) if self.is_known(value) else _standing_in(value)

    def _inputs(self, operator: Operator, args: Any, kwargs: Any) -> Iterator[torch.Tensor]:
        written = {name for _, name in operator.written}
        yield from host.cuda_tensors(args[operator.first_read :])
        yield from host.cuda_tensors([value for name, value in kwargs.items() if name not in written])

    def _worth_computing(
        self, operator: Operator, inputs: list[torch.Tensor], changed: list[torch.Tensor], choice: Choice | None
    ) -> bool:
        if len(changed) > _MANY_TENSORS or torch_private.is_capturing() or self.failures[operator.name] >= 3:
            return False
        if not all(tensor.nbytes <= _limit_bytes(tensor, choice) and _may_be_known(tensor) for tensor in changed):
            return False
        if any(tensor.nbytes > _looked_at_bytes(choice) for tensor in inputs):
            return False
        # A part written into something unknown leaves it unknown: no need to compute the part.
        return not operator.written or any(self._becomes_known(operator, tensor, choice) for tensor in changed)

    def _becomes_known(self, operator: Operator, tensor: torch.Tensor, choice: Choice | None) -> bool:
        if storage_identity(tensor) in self.known.references:
            return True
        most = most_bytes(choice)
        return tensor.untyped_storage().nbytes() <= most and (not operator.written or fills_its_storage(tensor, most))

    def _stays_assumed(self, operator: Operator, tensor: torch.Tensor) -> bool:
        """Whether a stand-in was overwritten in part alone."""
        return bool(operator.written) and self.known.is_assumed(tensor) and not fills_its_storage(tensor)

    def _run(self, operator: Operator, args: Any, kwargs: Any, result: Any) -> bool:
        try:
            host.run(operator, args, kwargs, result)
        except (RuntimeError, NotImplementedError, ValueError, IndexError, TypeError):
            self.failures[operator.name] += 1
            return False
        return True


def _standing_in(tensor: torch.Tensor) -> torch.Tensor:
    return torch.full(tensor.shape, stand_in_for(tensor.dtype), dtype=tensor.dtype, device="cpu")


def stand_in_for(dtype: torch.dtype) -> float | int | bool | complex:
    """The number an unknown element is taken to be: 1.0 where a loss may be, else nothing, else False."""
    if dtype is torch.bool:
        return False
    if dtype.is_complex:
        return complex(1.0)
    return 1.0 if dtype.is_floating_point else 0


def _limit_bytes(tensor: torch.Tensor, choice: Choice | None) -> int:
    if choice is not None and choice.routes:
        return most_bytes(choice)
    return _FLOATING_BYTES if tensor.is_floating_point() else SMALL_BYTES


def _looked_at_bytes(choice: Choice | None) -> int:
    return max(_LOOKED_AT_BYTES, most_bytes(choice))


def _may_be_known(tensor: torch.Tensor) -> bool:
    """Gradients stay unknown.

    To vouch for a storage makes a Python object of it, which autograd counts as an owner when it decides whether to add
    two gradients in place: memory would change. Nobody branches on a gradient's elements but through a reduction.
    """
    return not tensor.is_floating_point() or torch.is_grad_enabled() or _in_backward() == -1

"""Tells `Progress`, `Recorder` and `Observing` what the program does: modules called, backward run, optimisers stepped.

The wrappers add no reference to any tensor that would outlive the call they wrap, so the allocator sees the
same sequence with and without them; a test compares the two.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable
from typing import Any

from dryfit.recording.model import ZERO_GRAD
from dryfit.rehearse.inside import module_calls, phases, torch_private
from dryfit.rehearse.inside.imports import after_import
from dryfit.rehearse.inside.longest.giving import Longest
from dryfit.rehearse.inside.measuring import Measuring
from dryfit.rehearse.inside.observing import Observing
from dryfit.rehearse.inside.phases import Progress
from dryfit.rehearse.inside.recorder import Recorder


def place(
    progress: Progress,
    recorder: Recorder,
    measuring: Measuring,
    observing: Observing,
    longest: Longest,
    fault: Callable[[], None],
    let_time_pass: Callable[[], None],
) -> None:
    """Put the wrappers on torch, which has just been imported; `fault` is called where our own part of one fails.

    `let_time_pass` is called once a backward pass is over, or an optimizer's step outside one.
    """
    for name in ("enter", "optimizer_made", "optimizer_begins", "optimizer_ended"):
        setattr(progress, name, _ours(getattr(progress, name), fault))
    for name in (
        "enter", "begin_part", "end_part", "data_is_fetched", "autocast_changed", "counts_are_reset", "model_is_called",
        "model_returned", "module_returned", "backward_is_over", "optimizer_begins", "optimizer_ended",
    ):  # fmt: skip
        setattr(recorder, name, _while_it_works(recorder, getattr(recorder, name)))
    module_calls.watch(progress, recorder, measuring, observing, longest)
    _watch_backward(progress, recorder, measuring, observing, let_time_pass)
    _watch_optimizers(progress, recorder, measuring, observing, let_time_pass)
    torch_private.before_counts_are_reset(recorder.counts_are_reset)
    after_import("torch.utils.data.dataloader", lambda module: _watch_batches(module, recorder))
    after_import("torch.utils.data.dataloader", longest.watch)
    # Dynamo then runs our frames as they are and compiles what they call, as it does with torch's own.
    after_import("torch._dynamo", lambda _: torch_private.make_dynamo_skip("dryfit.rehearse.inside"))


def _ours(call: Callable[..., None], fault: Callable[[], None]) -> Callable[..., None]:
    def guarded(*args: Any) -> None:
        try:
            call(*args)
        except Exception:
            fault()

    return guarded


def _while_it_works(recorder: Recorder, call: Callable[..., None]) -> Callable[..., None]:
    def guarded(*args: Any) -> None:
        if recorder.goes_on:
            try:
                with torch_private.without_torch_function():  # the program's modes and subclasses have no say in it
                    call(*args)
            except Exception:
                recorder.failed()

    return guarded


def _watch_backward(
    progress: Progress,
    recorder: Recorder,
    measuring: Measuring,
    observing: Observing,
    let_time_pass: Callable[[], None],
) -> None:
    import torch

    depth = 0  # reentrant checkpointing runs backward inside backward

    def wrap(real: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(real)
        def run_backward(*args: Any, **kwargs: Any) -> Any:
            nonlocal depth
            if torch.compiler.is_compiling() or torch_private.is_tracing():  # traced, and not run
                return real(*args, **kwargs)
            if depth == 0:
                measuring.backward_begins()
                progress.enter(phases.BACKWARD)
                observing.backward_begins(args)
            depth += 1
            try:
                return real(*args, **kwargs)
            except BaseException as error:
                module_calls.leave_out_our_frames(error)
                raise
            finally:
                depth -= 1
                if depth == 0:
                    let_time_pass()
                    recorder.backward_is_over()
                    progress.enter(phases.AFTER_BACKWARD)
                    measuring.backward_is_over()
                    observing.backward_is_over()

        return run_backward

    torch_private.wrap_engine_run_backward(wrap)


def _watch_optimizers(
    progress: Progress,
    recorder: Recorder,
    measuring: Measuring,
    observing: Observing,
    let_time_pass: Callable[[], None],
) -> None:
    import torch

    stepping: set[int] = set()

    def watched(real: Callable[..., Any]) -> Callable[..., Any]:
        def step(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
            if id(self) in stepping:  # a subclass calling its parent's step
                return real(self, *args, **kwargs)
            before = progress.phase
            stepping.add(id(self))
            try:
                recorder.optimizer_begins(self)
                progress.optimizer_begins(self)
                observing.optimizer_begins(self)
                result = real(self, *args, **kwargs)
                if before != phases.BACKWARD:  # one for each gradient, say, as soon as it is there
                    let_time_pass()
                recorder.optimizer_ended(self)
                progress.optimizer_ended(self, before)
                observing.optimizer_ended(self)
                if progress.all_have_stepped:
                    measuring.all_have_stepped()
                return result
            finally:
                stepping.discard(id(self))

        # Not `functools.wraps`, which sets `__wrapped__`: older Dynamo takes optimisers' hooks off by following it.
        # GradScaler looks at the signature. `hooked` is torch's own mark, which keeps it from wrapping once more.
        step.__name__, step.__qualname__, step.__doc__ = real.__name__, real.__qualname__, real.__doc__
        step.__signature__ = inspect.signature(real)  # type: ignore[attr-defined]
        step.hooked = step.watched = True  # type: ignore[attr-defined]
        return step

    real_init = torch.optim.Optimizer.__init__

    @functools.wraps(real_init)
    def __init__(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
        real_init(self, *args, **kwargs)
        progress.optimizer_made(self)
        observing.optimizer_made(self)
        kind = type(self)
        if not getattr(kind.step, "watched", False):
            # A step that has no name or signature is of a kind that no optimizer of torch's is, and stays as it is.
            with contextlib.suppress(AttributeError, TypeError, ValueError):
                kind.step = watched(kind.step)  # type: ignore[method-assign]

    torch.optim.Optimizer.__init__ = __init__  # type: ignore[method-assign]
    torch.optim.Optimizer.zero_grad = _zero_grad_within(recorder, torch.optim.Optimizer.zero_grad)  # type: ignore
    torch.nn.Module.zero_grad = _zero_grad_within(recorder, torch.nn.Module.zero_grad)  # type: ignore


def _zero_grad_within(recorder: Recorder, real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def zero_grad(self: Any, *args: Any, **kwargs: Any) -> Any:
        recorder.begin_part(ZERO_GRAD)
        try:
            return real(self, *args, **kwargs)
        finally:
            recorder.end_part()

    return zero_grad


def _watch_batches(dataloader: Any, recorder: Recorder) -> None:
    def fetching(real: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(real)
        def __next__(self: Any) -> Any:
            recorder.data_is_fetched()
            return real(self)

        return __next__

    torch_private.wrap_next_batch(dataloader, fetching)

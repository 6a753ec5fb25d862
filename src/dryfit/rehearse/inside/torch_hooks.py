"""Tells `Progress` what the program does: modules called, backward run, optimisers stepped.

The three wrappers add no reference to any tensor that would outlive the call they wrap, so the allocator sees the
same sequence with and without them; a test compares the two.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable
from typing import Any

from dryfit.rehearse.inside import phases, torch_private
from dryfit.rehearse.inside.imports import after_import
from dryfit.rehearse.inside.phases import Progress

# NCCL's watchdog thread gives back the tensors of finished collectives when it next looks, every 100 ms; a virtual
# step is over before it looks once, and holds what a real step would have given back.
_WATCHDOG_PAUSE_SECONDS = 0.25


def place(progress: Progress, fault: Callable[[], None]) -> None:
    """Put the wrappers on torch, which has just been imported; `fault` is called where our own part of one fails."""
    for name in ("enter", "optimizer_made", "optimizer_begins", "optimizer_ended"):
        setattr(progress, name, _ours(getattr(progress, name), fault))
    _watch_modules(progress)
    _watch_backward(progress)
    _watch_optimizers(progress)
    # Dynamo then runs our frames as they are and compiles what they call, as it does with torch's own.
    after_import("torch._dynamo", lambda _: torch_private.make_dynamo_skip(__name__))


def _ours(call: Callable[..., None], fault: Callable[[], None]) -> Callable[..., None]:
    def guarded(*args: Any) -> None:
        try:
            call(*args)
        except Exception:
            fault()

    return guarded


def _watch_modules(progress: Progress) -> None:
    import torch

    real = torch.nn.Module.__call__
    unmoved_by_modules = (phases.FORWARD, phases.BACKWARD)

    def __call__(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling() and progress.phase not in unmoved_by_modules:
            if torch.is_grad_enabled():
                progress.enter(phases.FORWARD)
            elif progress.phase != phases.EVALUATION:
                progress.enter(phases.EVALUATION)
        return real(module, *args, **kwargs)

    torch.nn.Module.__call__ = __call__  # type: ignore[method-assign]


def _watch_backward(progress: Progress) -> None:
    depth = 0  # reentrant checkpointing runs backward inside backward

    def wrap(real: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(real)
        def run_backward(*args: Any, **kwargs: Any) -> Any:
            nonlocal depth
            if depth == 0:
                progress.enter(phases.BACKWARD)
            depth += 1
            try:
                return real(*args, **kwargs)
            finally:
                depth -= 1
                if depth == 0:
                    _let_watchdog_look()
                    progress.enter(phases.AFTER_BACKWARD)

        return run_backward

    torch_private.wrap_engine_run_backward(wrap)


def _watch_optimizers(progress: Progress) -> None:
    import torch

    stepping: set[int] = set()

    def watched(real: Callable[..., Any]) -> Callable[..., Any]:
        def step(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
            if id(self) in stepping:  # a subclass calling its parent's step
                return real(self, *args, **kwargs)
            before = progress.phase
            stepping.add(id(self))
            try:
                progress.optimizer_begins(self)
                result = real(self, *args, **kwargs)
                _let_watchdog_look()
                progress.optimizer_ended(self, before)
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
        kind = type(self)
        if not getattr(kind.step, "watched", False):
            kind.step = watched(kind.step)  # type: ignore[method-assign]

    torch.optim.Optimizer.__init__ = __init__  # type: ignore[method-assign]


def _let_watchdog_look() -> None:
    if torch_private.process_group_exists():
        time.sleep(_WATCHDOG_PAUSE_SECONDS)

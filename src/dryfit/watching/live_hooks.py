"""Tells of what a live program does: models called, backward run, optimizers made and stepped.

The hooks are placed as the first listener comes and taken off as the last one goes; where something else has wrapped
the same function since, ours stays below it and does nothing.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable
from threading import get_ident
from typing import Any, Protocol

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from dryfit.watching.torch_private import make_dynamo_skip, replace_engine_run_backward


class Listener(Protocol):
    """What is told. None of these may raise."""

    def model_called(self, module: Any, args: Any, kwargs: Any) -> None: ...
    def model_returned(self, module: Any, output: Any) -> None: ...
    def backward_begins(self, tensors: Any, retain_graph: bool | None, create_graph: bool) -> None: ...
    def backward_is_over(self, *, has_failed: bool) -> None: ...
    def optimizer_made(self, optimizer: Any) -> None: ...
    def optimizer_begins(self, optimizer: Any) -> None: ...
    def optimizer_ended(self, optimizer: Any) -> None: ...


_listeners: tuple[Listener, ...] = ()  # replaced, never changed, so that it can be gone through at any time
_undo: list[Callable[[], None]] = []
_changes = threading.Lock()


def listen(listener: Listener) -> Callable[[], None]:
    """Tell a listener from now on, on whatever thread something happens; the answer ends that."""
    global _listeners
    with _changes:
        if not _listeners:
            _place()
        _listeners = (*_listeners, listener)

    def end() -> None:
        global _listeners
        with _changes:
            if listener in _listeners:
                _listeners = tuple(each for each in _listeners if each is not listener)
                if not _listeners:
                    while _undo:
                        _undo.pop()()

    return end


def _place() -> None:
    running: set[int] = set()  # the threads in which a model is being called
    depth = [0]  # of backward passes within backward passes, on all threads
    _undo.append(_wrap(torch.nn.Module, "__call__", lambda real: _calling(real, running, depth)))
    _undo.append(replace_engine_run_backward(lambda real: _running_backward(real, depth)))
    _undo.append(_wrap(torch.optim.Optimizer, "__init__", _making))
    before = register_optimizer_step_pre_hook(_optimizer_begins)
    after = register_optimizer_step_post_hook(_optimizer_ended)
    _undo.extend([before.remove, after.remove])
    if "torch._dynamo" in sys.modules:
        # Not this file: Dynamo traces the wrapper of a module's call, finds that it is compiling, and goes on below it.
        make_dynamo_skip("dryfit.watching.watch")


def _wrap(home: type, name: str, change: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[[], None]:
    real = home.__dict__[name]
    wrapped = change(real)
    setattr(home, name, wrapped)

    def undo() -> None:
        if home.__dict__.get(name) is wrapped:
            setattr(home, name, real)

    return undo


def _calling(real: Callable[..., Any], running: set[int], depth: list[int]) -> Callable[..., Any]:
    is_compiling = torch.compiler.is_compiling

    def __call__(module: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return real(module, *args, **kwargs)
        thread = get_ident()
        if thread in running or depth[0] or not _listeners:  # a part of a model, or recomputed
            return real(module, *args, **kwargs)
        running.add(thread)
        try:
            for listener in _listeners:
                listener.model_called(module, args, kwargs)
            output = real(module, *args, **kwargs)
            for listener in _listeners:
                listener.model_returned(module, output)
            return output
        finally:
            running.discard(thread)

    __call__.__signature__ = inspect.signature(real)  # type: ignore[attr-defined]
    __call__.__name__ = real.__name__  # by which Dynamo knows a module's call
    return __call__


def _running_backward(real: Callable[..., Any], depth: list[int]) -> Callable[..., Any]:
    @functools.wraps(real)
    def run_backward(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or depth[0] or not _listeners:
            return real(*args, **kwargs)
        depth[0] += 1
        has_failed = True
        try:
            for listener in _listeners:
                listener.backward_begins(args[0], args[2], args[3])
            gradients = real(*args, **kwargs)
            has_failed = False
            return gradients
        finally:
            depth[0] -= 1
            for listener in _listeners:
                listener.backward_is_over(has_failed=has_failed)

    return run_backward


def _making(real: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(real)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        real(self, *args, **kwargs)
        for listener in _listeners:
            listener.optimizer_made(self)

    return __init__


def _optimizer_begins(optimizer: Any, args: Any, kwargs: Any) -> None:
    for listener in _listeners:
        listener.optimizer_begins(optimizer)


def _optimizer_ended(optimizer: Any, args: Any, kwargs: Any) -> None:
    for listener in _listeners:
        listener.optimizer_ended(optimizer)

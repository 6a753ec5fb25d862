"""Wraps the call of every module: phases begin there, and the stacks of allocations say which module they belong to.

Each named module is called through a frame of its own whose function has the module's path for a name. The allocator
keeps the Python stack of each allocation, so the path is in it, at no cost beyond that of the frame.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import FunctionType
from typing import Any

from dryfit.places import is_ours
from dryfit.recording.stacks import MODULE_FILE, Frame
from dryfit.rehearse.inside import phases
from dryfit.rehearse.inside.phases import Progress
from dryfit.rehearse.inside.recorder import Recorder

_FRAME_NAME = "module "
_Call = Callable[..., Any]


def module_frame(file: str, name: str, line: int) -> Frame | None:
    """A frame of an allocation's stack as a recording has it: our own are modules, or left out."""
    if not is_ours(file):
        return Frame(file, name, line)
    is_module = file == __file__ and name.startswith(_FRAME_NAME)
    return Frame(MODULE_FILE, name[len(_FRAME_NAME) :], 0) if is_module else None


def watch(progress: Progress, recorder: Recorder) -> None:
    """Put the wrapper on `torch.nn.Module.__call__`.

    It adds no reference to any tensor that would outlive the call, so the allocator sees the same sequence with it.
    """
    import torch

    real = torch.nn.Module.__call__
    frames: dict[int, tuple[weakref.ref[torch.nn.Module], _Call]] = {}
    unmoved_by_modules = (phases.FORWARD, phases.BACKWARD)
    outermost: torch.nn.Module | None = None

    def through_its_frame(module: torch.nn.Module) -> _Call:
        known = frames.get(id(module))
        if known is not None and known[0]() is module:
            return known[1]
        path = recorder.labels.names.path_of(module)
        if path is None:
            return real
        call = _named(_call_of(real, path, type(module).__name__, recorder), path)
        frames[id(module)] = weakref.ref(module), call
        return call

    def __call__(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        nonlocal outermost
        if torch.compiler.is_compiling():
            return real(module, *args, **kwargs)
        if progress.phase not in unmoved_by_modules:
            if torch.is_grad_enabled():
                progress.enter(phases.FORWARD)
            elif progress.phase != phases.EVALUATION:
                progress.enter(phases.EVALUATION)
        if recorder.is_autocast_enabled() != recorder.autocast:
            recorder.autocast_changed()
        if outermost is not None or progress.phase == phases.BACKWARD:
            return through_its_frame(module)(module, *args, **kwargs)
        outermost = module
        try:
            recorder.model_is_called(module, args, kwargs)
            return through_its_frame(module)(module, *args, **kwargs)
        finally:
            outermost = None
            recorder.model_returned(module)

    torch.nn.Module.__call__ = __call__  # type: ignore[method-assign]


def _call_of(real: _Call, path: str, kind: str, recorder: Recorder) -> FunctionType:
    def call(module: Any, *args: Any, **kwargs: Any) -> Any:
        output = real(module, *args, **kwargs)
        if recorder.looks_at_outputs:
            recorder.module_returned(path, kind, output)
        return output

    assert isinstance(call, FunctionType)
    return call


def _named(function: FunctionType, path: str) -> _Call:
    function.__code__ = function.__code__.replace(co_name=_FRAME_NAME + path)
    return function

"""Wraps the call of every module: phases begin there, and the stacks of allocations say which module they belong to.

Each named module is called through a frame of its own whose function has the module's path for a name. The allocator
keeps the Python stack of each allocation, so the path is in it, at no cost beyond that of the frame.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from threading import get_ident
from types import FunctionType
from typing import Any

from dryfit.places import is_ours
from dryfit.recording.stacks import MODULE_FILE, Frame
from dryfit.rehearse.inside import phases
from dryfit.rehearse.inside.identities import Identities
from dryfit.rehearse.inside.longest.giving import Longest
from dryfit.rehearse.inside.measuring import Measuring
from dryfit.rehearse.inside.observing import Observing
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


def watch(progress: Progress, recorder: Recorder, measuring: Measuring, observing: Observing, longest: Longest) -> None:
    """Put the wrapper on `torch.nn.Module.__call__`.

    It adds no reference to any tensor that would outlive the call, so the allocator sees the same sequence with it.
    """
    import torch

    real, is_compiling = torch.nn.Module.__call__, torch.compiler.is_compiling
    calls: Identities[_Call] = Identities()
    call_by_id, is_autocast_enabled = calls.by_id, recorder.is_autocast_enabled
    unmoved_by_modules, backward = (phases.FORWARD, phases.BACKWARD), phases.BACKWARD
    inside: set[int] = set()  # the threads in which a model is being called

    def through_its_frame(module: torch.nn.Module) -> _Call:
        path = recorder.labels.names.path_of(module)
        if path is None:
            return real
        call = _named(_call_of(real, path, type(module).__name__, recorder), path)
        calls.put(module, call)
        return call

    def begins() -> None:
        phase = progress.phase
        if phase not in unmoved_by_modules:
            if torch.is_grad_enabled():
                progress.enter(phases.FORWARD)
            elif phase != phases.EVALUATION:
                progress.enter(phases.EVALUATION)
        if is_autocast_enabled() != recorder.autocast:
            recorder.autocast_changed()

    def __call__(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return real(module, *args, **kwargs)
        thread = get_ident()
        if thread in inside or progress.phase == backward or "_is_replica" in module.__dict__:
            begins()
            return (call_by_id(id(module)) or through_its_frame(module))(module, *args, **kwargs)
        inside.add(thread)
        try:
            measuring.model_is_called(module, args, kwargs)  # what a person writes before the call
            begins()
            recorder.model_is_called(module, args, kwargs)
            observing.model_called(module, args, kwargs)
            longest.model_called(progress.step, progress.phase, args, kwargs)
            output = (call_by_id(id(module)) or through_its_frame(module))(module, *args, **kwargs)
            measuring.model_gave(module, output)
            observing.model_returned(module, output)
            return output
        except BaseException as error:
            leave_out_our_frames(error)
            raise
        finally:
            inside.discard(thread)
            recorder.model_returned(module)
            measuring.model_returned(module)

    __call__.__signature__ = inspect.signature(real)  # type: ignore[attr-defined]
    # By the name Dynamo knows a module's call, and begins the graph with what that calls: a full graph has to.
    __call__.__name__ = real.__name__
    torch.nn.Module.__call__ = __call__  # type: ignore[method-assign]


def leave_out_our_frames(error: BaseException) -> None:
    """Take the frames of this file out of a traceback, but for the first: a person looks for lines of the program."""
    outer = error.__traceback__
    while outer is not None:
        inner = outer.tb_next
        while inner is not None and inner.tb_frame.f_code.co_filename == __file__:
            inner = inner.tb_next
        if inner is not outer.tb_next:
            outer.tb_next = inner
        outer = inner


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

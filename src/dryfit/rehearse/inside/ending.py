"""How a rehearsed process ends: by itself, by an exception, or because the rehearsal has seen enough.

A process that the rehearsal stops ends at once: neither its exit handlers nor its `finally` blocks run, because what
they would save, upload or log is garbage.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from dryfit.places import is_of_the_program

Facts = Callable[[], dict[str, Any]]


def last_words(write: Callable[..., None], facts: Facts, how: str, advice: str) -> None:
    """Write the `end` event: how it ended, the uncaught exception if there was one, and all that is known.

    `advice` is for a sentence after the exception, or "".
    """
    error = uncaught_error()
    if error is not None:
        error["advice"] = advice
    write("end", how=how, at=time.monotonic(), error=error, files=program_files(), **facts())


def stop_now(say: Callable[[str], None], how: str) -> NoReturn:
    """Say the last words, show what the program has printed so far, and leave without running its exit handlers."""
    say(how)
    _leave(0)


def leave_finished() -> NoReturn:
    """Leave as a process that has run to its end."""
    _leave(0)


def leave_out_of_memory() -> None:
    """Leave at once if the process ends by an out-of-memory error: taking its modules apart takes seconds."""
    error = uncaught_error()
    if error is not None and error["is_out_of_memory"]:
        _leave(1)


def spare_installed_modules() -> None:
    """Have Python end this process without taking installed modules apart, which takes a second, or two.

    Unlike leaving at once it is for any exit code, which is not known here; the program's own modules come apart.
    """
    gc.freeze()  # or the last collection would go through all they hold
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(dict(sys.modules)))  # never to be freed
    kept = {"sys", "builtins", "__main__", *(name for name, _ in _modules_of_the_program())}
    for name in set(sys.modules) - kept:
        del sys.modules[name]


def _leave(status: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(status)


def program_files() -> list[str]:
    """The program's own source files that this process has imported, the script among them."""
    # Python forgets the file of `__main__` when that has run to its end or failed, and torch names files there are not.
    script = [file for file in sys.argv[:1] if is_of_the_program(file)]
    files = {Path(file).absolute() for file in (*script, *(file for _, file in _modules_of_the_program()))}
    return sorted(str(file) for file in files if file.is_file())


def _modules_of_the_program() -> Iterator[tuple[str, str]]:
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and is_of_the_program(file):
            yield name, file


def last_exception() -> BaseException | None:
    """The exception that is ending this process, as Python keeps it for debuggers; None if there is none."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    return error if isinstance(error, BaseException) else None


def uncaught_error() -> dict[str, Any] | None:
    """What there is to know of the exception that is ending this process; None if there is none."""
    error = last_exception()
    if error is None:
        return None
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if is_of_the_program(frame.filename)] or list(frames)
    file, line = (own[-1].filename, own[-1].lineno) if own else (None, None)
    if isinstance(error, SyntaxError) and error.filename:
        file, line = error.filename, error.lineno
    return {
        "type": type(error).__name__,
        "is_out_of_memory": is_out_of_memory(error),
        "message": str(error),
        "file": file,
        "line": line,
        "children": failed_children(error),
    }


def failed_children(error: BaseException) -> list[dict[str, int]]:
    """The processes whose failure this error of a launcher tells, and their exit codes; below 0 it is a signal's.

    torchrun's `ChildFailedError` knows them, and so do torch.multiprocessing's `ProcessRaisedException` (an exit code
    of 1) and `ProcessExitedException`.
    """
    if isinstance(pid := getattr(error, "error_pid", None), int):
        return [{"pid": pid, "exit_code": getattr(error, "exit_code", 1)}]
    failures = getattr(error, "failures", None)
    if type(error).__name__ != "ChildFailedError" or not isinstance(failures, dict):
        return []
    return [{"pid": failure.pid, "exit_code": failure.exitcode} for failure in failures.values()]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that the card is full: PyTorch's own kind, or CUDA's or NCCL's text where it is not asked.

    >>> is_out_of_memory(RuntimeError("CUDA error: out of memory")), is_out_of_memory(MemoryError("out of memory"))
    (True, False)
    """
    if any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__):
        return True
    if not isinstance(error, RuntimeError):
        return False
    starts = ("CUDA error: out of memory", "CUDA driver error: out of memory", "CUDA out of memory")
    return str(error).startswith(starts) or "Cuda failure 2 'out of memory'" in str(error)

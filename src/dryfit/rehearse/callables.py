"""A Python function in place of a program: written to a file, and called in the process of each rehearsal.

    with as_words(step, {"batch": "1..512"}) as words:
        words                               # ['-m', 'dryfit.rehearse.inside.call', '/tmp/.../step', 'batch={batch}']

Functions of modules are sent by name, those of a notebook or of the script itself with their code (cloudpickle).
Reading such a file runs what it says. It is ours, written a moment before into a folder that nobody else may write to,
and does no more than the function itself.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import json
import os
import pickletools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, TypeAlias

from dryfit.errors import UsageError
from dryfit.rehearse.child import folder_of_our_own
from dryfit.rehearse.events import ORDERS_VARIABLE
from dryfit.rehearse.inside.call import code_of_file
from dryfit.rehearse.inside.imported import installed_modules

# What can be rehearsed: the words of a command line, or something to call.
Program: TypeAlias = "Sequence[str | os.PathLike[str]] | Callable[..., object]"

MODULE = "dryfit.rehearse.inside.call"
_USUAL = "batch"


@contextlib.contextmanager
def as_words(program: Program, vary: Mapping[str, object] | None = None) -> Iterator[list[str]]:
    """The words that start a program. What is called gets what `vary` names, each a placeholder: `batch={batch}`.

    Without `vary` it is called without arguments; if that is empty, with `batch`.

    Raises:
        UsageError: it is one word; or it cannot be called with these, or not be sent to another process.
    """
    if not callable(program):
        if isinstance(program, (str, os.PathLike)):
            raise UsageError(f"The program is given as a list of words: [{os.fspath(program)!r}], and not as one word.")
        if not isinstance(program, Sequence):
            raise UsageError(f"The program is a list of words or a function, and {program!r} is neither.")
        yield [os.fspath(word) for word in program]
        return
    name = _name(program)
    names = _arguments(program, name, vary)
    if os.environ.get(ORDERS_VARIABLE):
        raise UsageError(
            f"{name}() is being rehearsed, and the module that it is in asks for a rehearsal when it is imported. "
            'Write that below `if __name__ == "__main__":`.'
        )
    content = _content(program, name)
    with folder_of_our_own() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        yield ["-m", MODULE, str(path), *(f"{each}={{{each}}}" for each in names)]


def as_called(words: Sequence[str]) -> list[str]:
    """Words as they are shown: those of `as_words` are the call that they stand for.

    >>> as_called(["-m", MODULE, "/tmp/x/step", "batch=8"]), as_called(["train.py", "8"])
    (['step(batch=8)'], ['train.py', '8'])
    """
    if not is_call(words):
        return list(words)
    return [f"{Path(words[2]).name}({', '.join(words[3:])})"]


def is_call(words: Sequence[str]) -> bool:
    """Whether these are words of `as_words` that stand for a call."""
    return list(words[:2]) == ["-m", MODULE] and len(words) > 2


def imports_of(words: Sequence[str]) -> tuple[list[str], str | None]:
    """Of the words of a call: the installed modules that its file names, and the source file of its own module."""
    with Path(words[2]).open("rb") as file:
        about = json.loads(file.readline())
    return about["imports"], about["file"]


def _name(program: Callable[..., object]) -> str:
    """The name to call it by, which is that of its file too."""
    while isinstance(program, functools.partial):
        program = program.func
    name: str = getattr(program, "__name__", type(program).__name__)
    return name.strip("<>")


def _arguments(program: Callable[..., object], name: str, vary: Mapping[str, object] | None) -> list[str]:
    """The names of the arguments that it gets.

    Raises:
        UsageError: it does not take one of them, or needs another.
    """
    try:
        parameters = inspect.signature(program).parameters.values()
    except (TypeError, ValueError):  # of C code, which does not say
        return list(vary or ())
    by_name = [each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters)
    wanted = list(vary or ())
    if vary is not None and not wanted:
        wanted = [_USUAL]
        if not takes_any and _USUAL not in by_name:
            raise UsageError(
                f"There is nothing to search: {name}() has no parameter called {_USUAL}. Name the one to search, with "
                f"its values: dryfit.fit({name}, vary={{{(by_name or [_USUAL])[0]!r}: '1..512'}})"
            )
    for each in wanted:
        if not takes_any and each not in by_name:
            has = f"those that it has are {', '.join(by_name)}" if by_name else "it has none that has a name"
            raise UsageError(f"{name}() has no parameter called {each}, for which vary gives values; {has}.")
    for parameter in parameters:
        has_default = parameter.default is not parameter.empty
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or has_default:
            continue
        if parameter.name not in wanted or parameter.name not in by_name:
            give = "a list of values in vary, or " if vary is not None else ""
            raise UsageError(
                f"{name}() needs {parameter.name}, and gets no value for it. Give it {give}one value: "
                f"functools.partial({name}, {parameter.name}=...)"
            )
    return wanted


def _content(program: Callable[..., object], name: str) -> bytes:
    """What `inside.call` reads: one line of JSON on where to find modules, and the pickle.

    Raises:
        UsageError: it holds something that no other process can have.
    """
    try:
        pickled = _pickled(program)
    except Exception as error:
        held = _what_cannot_be_sent(program)
        raise UsageError(
            f"{name}() cannot be sent to the process of a rehearsal{held}: {error}. Have it made within {name}(), "
            "as in a script that starts anew."
        ) from error
    named = {argument for _, argument, _ in pickletools.genops(pickled) if isinstance(argument, str)}
    module = sys.modules.get(getattr(program, "__module__", None) or "")
    about = {
        "path": [str(Path(each or ".").absolute()) for each in sys.path],
        "argv": sys.argv,
        "imports": [each for each in installed_modules() if each in named or each == "torch"],
        "file": getattr(module, "__file__", None),
    }
    return json.dumps(about).encode() + b"\n" + pickled


def _pickled(value: object) -> bytes:
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, value: Any) -> Any:
            torch = sys.modules.get("torch")
            if torch is not None and isinstance(value, torch.Tensor) and value.is_cuda:
                raise TypeError(f"a tensor lies on {value.device}, and a rehearsal has a card of its own")
            if isinstance(value, CodeType):  # cloudpickle leaves out its file, and lines are shown by that
                make, arguments = self.dispatch_table[CodeType](value)
                return code_of_file, (value.co_filename, make, arguments)
            return super().reducer_override(value)

    with io.BytesIO() as file, _by_value(sys.modules.get(getattr(value, "__module__", None) or ""), cloudpickle):
        Pickler(file).dump(value)
        return file.getvalue()


@contextlib.contextmanager
def _by_value(module: ModuleType | None, cloudpickle: Any) -> Iterator[None]:
    """Have a module's functions sent with their code, if no other process would find the module by its name."""
    top = module.__name__.partition(".")[0] if module is not None else "__main__"
    if module is None or top == "__main__" or top in sys.builtin_module_names or PathFinder.find_spec(top) is not None:
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _what_cannot_be_sent(program: Callable[..., object]) -> str:
    """Which of the variables that a function uses is the one, as far as that can be found."""
    with contextlib.suppress(TypeError):
        used = inspect.getclosurevars(program)
        for name, value in {**used.globals, **used.nonlocals}.items():
            try:
                _pickled(value)
            except Exception:
                return f", because of its {name}"
    return ""

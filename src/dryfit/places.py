"""Whose code a source file is: the program's own, a library's, or machinery that is nobody's line."""

from __future__ import annotations

import os
import re
import sys
from enum import Enum
from pathlib import Path

_PYTHON = re.compile(r"/lib(?:64)?/python3\.\d+t?/|/python3\d+\.zip/")
_INSTALLED = re.compile(r"/(?:site|dist)-packages/")
_TORCH = re.compile(r"/(?:site|dist)-packages/(?:torch|triton|functorch)/")
# Kernels and wrappers that torch.compile and Triton write, in their caches: torch's own place for them, and ours.
_GENERATED = re.compile(r"/torchinductor_[^/]*/|/dryfit-kernels-\d+/")
_GENERATED_IN = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
_OURS = str(Path(__file__).parent) + os.sep


class Owner(Enum):
    """Whose code a file is.

    `MACHINERY` is never the line that a person asks for: Python's own library, torch, dryfit, and generated code.
    """

    PROGRAM = "program"
    LIBRARY = "library"
    MACHINERY = "machinery"


def owner_of(file: str) -> Owner:
    """Whose code a source file is, by its path alone: the file need not exist.

    >>> owner_of("/home/me/train.py").value, owner_of("/venv/lib/python3.11/site-packages/trl/trainer.py").value
    ('program', 'library')
    >>> owner_of("/venv/lib/python3.11/site-packages/torch/nn/functional.py").value
    'machinery'

    A torch that is loaded from elsewhere, such as its own source tree, is known in the process that loaded it.
    """
    if file.startswith("<") or is_ours(file) or _TORCH.search(file) or _GENERATED.search(file):
        return Owner.MACHINERY
    if _INSTALLED.search(file):
        return Owner.LIBRARY
    if _PYTHON.search(file) or file.startswith(_folders_of_this_process()):
        return Owner.MACHINERY
    return Owner.PROGRAM


def is_ours(file: str) -> bool:
    """Whether a source file is dryfit's own."""
    return file.startswith(_OURS)


def is_of_the_program(file: str) -> bool:
    """Whether a source file is neither Python's, nor an installed package's, nor dryfit's, nor generated.

    >>> is_of_the_program("/home/me/train.py"), is_of_the_program("/usr/lib/python3.11/json/decoder.py")
    (True, False)
    """
    return owner_of(file) is Owner.PROGRAM


def _folders_of_this_process() -> tuple[str, ...]:
    """Where this process has its torch, and its caches of generated code."""
    torch_file = getattr(sys.modules.get("torch"), "__file__", None)
    folders = [Path(torch_file).parent if torch_file else None, *map(os.environ.get, _GENERATED_IN)]
    return tuple(f"{folder}{os.sep}" for folder in folders if folder)


def as_seen_from_here(file: str) -> str:
    """A path as a person standing in the current folder would write it: relative to it, unless it lies outside."""
    try:
        relative = os.path.relpath(file)
    except (OSError, ValueError):  # the current folder is gone, or there is no path
        return file
    return file if relative.startswith("..") else relative

"""Puts the virtual card in front of CUDA's libraries: in a child process, by its environment, or in this one."""

from __future__ import annotations

import atexit
import ctypes
import dataclasses
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from dryfit.errors import UsageError
from dryfit.virtual_card.cudnn import oracle_for
from dryfit.virtual_card.cudnn.background import answer_in_background
from dryfit.virtual_card.paths import listable
from dryfit.virtual_card.settings import VARIABLE, CardSettings
from dryfit.virtual_card.torch_build import TorchBuild, installed_torch

LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")


def library_folder() -> Path:
    """The folder of the compiled library.

    >>> sorted(path.name for path in library_folder().glob("lib*.so.1"))
    ['libcuda.so.1', 'libnvidia-ml.so.1']

    Raises:
        UsageError: the library is missing, or older than its sources; the message has the command that compiles it.
    """
    from dryfit.virtual_card import build  # here, so that `python -m dryfit.virtual_card.build` imports it once

    folder = build.LIBRARY_FOLDER
    if build.is_current(folder) and all((folder / name).is_file() for name in LIBRARIES):
        return folder
    state = "was compiled from other sources than those here" if (folder / build.STAMP).exists() else "is not compiled"
    raise UsageError(
        f"The virtual card's library {state} ({folder}). Compile it; any C compiler does: "
        f"{sys.executable} -m dryfit.virtual_card.build"
    )


def environment(
    settings: CardSettings, torch_build: TorchBuild | None = None, base: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The variables that put this card in front of a child process; add them to its environment.

    >>> card = CardSettings(name="NVIDIA L4", sm=89, sms=58, memory_bytes=24 << 30)
    >>> subprocess.run([sys.executable, "train.py"], env=os.environ | environment(card))  # doctest: +SKIP

    Paths that `base` already has are kept behind the library's. Raises:
        UsageError: the library is not compiled, or the torch (default: this interpreter's) has no CUDA in it.
    """
    folder = listable(library_folder())
    torch_build = torch_build or installed_torch()
    settings = dataclasses.replace(
        settings, cuda=settings.cuda or torch_build.require_cuda(), cudnn=settings.cudnn or torch_build.cudnn
    )
    preload = ":".join(str(folder / name) for name in LIBRARIES)
    return {
        VARIABLE: settings.text(),
        "LD_PRELOAD": _before(preload, base.get("LD_PRELOAD", "")),
        "LD_LIBRARY_PATH": _before(str(folder), base.get("LD_LIBRARY_PATH", "")),
        "TRITON_LIBCUDA_PATH": str(folder),  # Triton links its launchers against libcuda
        "TORCH_NCCL_ENABLE_MONITORING": "0",  # its monitor waits for a heartbeat of ranks that may not be there
        "TORCH_AUTOGRAD_SHUTDOWN_WAIT_LIMIT": "0.1",  # of 10 seconds, for threads that c/ending.c may have stopped
    }


def _before(first: str, others: str) -> str:
    kept = [part for part in others.replace(" ", ":").split(":") if part and part not in first.split(":")]
    return ":".join([first, *kept])


def in_front() -> bool:
    """Whether a virtual card is in front of this process."""
    return hasattr(ctypes.CDLL(None), "dryfit_is_virtual_card")


def put_in_front(settings: CardSettings) -> None:
    """Give this process the card, and the child processes it starts; where it has one already, nothing happens.

    >>> put_in_front(CardSettings(name="NVIDIA L4", sm=89, sms=58, memory_bytes=24 << 30))  # doctest: +SKIP

    Raises:
        UsageError: torch is imported already, or anything that `environment` raises.
    """
    if in_front():
        there, wanted = _deciding(os.environ.get(VARIABLE, "")), _deciding(settings.text())
        if there != wanted:
            raise UsageError(
                f"This process has a virtual card already, {there['name']}, and keeps it to its end; "
                f"{wanted['name']} needs a process of its own (in a notebook: restart the kernel)."
            )
        return
    if "torch" in sys.modules:
        raise UsageError(
            "torch is already imported in this process, and has found its CUDA libraries without the virtual card. "
            "Put the card in front before the first `import torch` (in a notebook: restart the kernel, and run this "
            "cell first)."
        )
    build = installed_torch()
    os.environ.update(environment(settings, build))
    answer_in_background(oracle_for(settings, build))
    for name in LIBRARIES:
        ctypes.CDLL(str(library_folder() / name), ctypes.RTLD_GLOBAL)
    # Loaded this late, the library's pthread_exit (c/ending.c) is not in front of the one Python calls: give torch's
    # threads the moment they need before the interpreter shuts down.
    atexit.register(time.sleep, 0.05)


def _deciding(text: str) -> dict[str, str]:
    """Of settings as the library reads them, those that say which card it is."""
    pairs = dict(pair.partition("=")[::2] for pair in text.split(";") if pair)
    names = ("name", "sm", "sms", "memory_bytes", "outside_bytes", "count", "order")
    return {name: pairs.get(name, "") for name in names}

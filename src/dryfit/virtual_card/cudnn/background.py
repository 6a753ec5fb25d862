"""Answers questions about plans for a process that has a virtual card in front of itself, from a thread of its own."""

from __future__ import annotations

import atexit
import os
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence

from dryfit.virtual_card.cudnn.library import Oracle
from dryfit.virtual_card.cudnn.server import PlanServer

_LOOK_SECONDS = 0.2


class _Child:
    """The process that answers, as a child of this one."""

    def __init__(self, words: Sequence[str], variables: Mapping[str, str], descriptor: int) -> None:
        self._process = subprocess.Popen(
            words,
            env=dict(variables),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[descriptor],
            start_new_session=True,
        )

    def ended(self) -> bool:
        return self._process.poll() is not None

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def answer_in_background(oracle: Oracle) -> None:
    """Have questions of this process, and of those it starts, answered until it ends.

    The socket's folder and the process that answers go when this process does.
    """
    if oracle.library is None:
        return
    folder = tempfile.TemporaryDirectory(prefix="dryfit-cudnn-")
    server = PlanServer(folder.name, oracle, _Child)
    os.environ.update(server.variables)
    over, owner = threading.Event(), os.getpid()

    def answer() -> None:
        while not over.is_set():
            server.look(_LOOK_SECONDS)
            if server.is_busy:
                over.wait(_LOOK_SECONDS)

    def end() -> None:
        if os.getpid() != owner:
            return
        over.set()
        answering.join()
        server.__exit__()
        folder.cleanup()

    answering = threading.Thread(target=answer, name="dryfit-cudnn", daemon=True)
    answering.start()
    atexit.register(end)

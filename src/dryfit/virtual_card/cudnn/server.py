"""Starts the process that has the real cuDNN loaded when the first question comes, and ends it."""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from dryfit.virtual_card.cudnn.library import Oracle

_ANSWERS, _SOCKET = "DRYFIT_CUDNN_ANSWERS", "DRYFIT_CUDNN_SOCKET"  # as c/cudnn_answers.c reads them
_NAME = "cudnn"
_MOST_STARTS = 3  # a question that ends it must not end it for ever
# Nothing of the user's, so neither the virtual card nor a real one: answers do not depend on the machine.
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "CUDA_VISIBLE_DEVICES": ""}


class Running(Protocol):
    """A process that was started: `ended` says whether it has, `end` sees that it does."""

    def ended(self) -> bool: ...
    def end(self) -> None: ...


Start = Callable[[Sequence[str], Mapping[str, str], int], Running]
"""Starts a program with these words and variables, and hands it one descriptor."""


class PlanServer:
    """Where the virtual card's processes ask about plans: a socket in a folder of theirs, and who answers there.

        with PlanServer(folder, oracle, start) as server:
            ...                                  # processes with `server.variables` in their environment run
            server.look()                        # now and then: starts the process for the first who asks

    Nothing is started until then, and never for what the file of answers has. Without an oracle, or a place for its
    answers, nobody can ask.
    """

    def __init__(self, folder: str, oracle: Oracle, start: Start) -> None:
        self._oracle, self._start = oracle, start
        self._listening: socket.socket | None = None
        self._running: Running | None = None
        self.starts = 0
        self.variables: dict[str, str] = {}
        if oracle.library is None or oracle.answers is None:
            return
        with contextlib.suppress(OSError):
            oracle.answers.parent.mkdir(parents=True, exist_ok=True)
            self._listening = _listen(folder)
            self.variables = {_ANSWERS: str(oracle.answers), _SOCKET: f"{folder}/{_NAME}"}

    def look(self, seconds: float = 0) -> None:
        """Start the process if somebody asks, and once more if it has ended and somebody else asks."""
        if self._running is not None and self._running.ended():
            self._running.end()
            self._running = None
            if self.starts >= _MOST_STARTS:
                self._refuse()
        if self._listening is None or self._running is not None:
            return
        with contextlib.suppress(OSError):
            if select.select([self._listening], [], [], seconds)[0]:
                self._begin()

    @property
    def is_busy(self) -> bool:
        """Whether there is nothing to wait for but the end of the process."""
        return self._running is not None or self._listening is None

    def _begin(self) -> None:
        from dryfit.virtual_card import build  # here, so that `python -m dryfit.virtual_card.build` imports it once

        assert self._listening is not None
        oracle = self._oracle
        words = [str(build.LIBRARY_FOLDER / build.SERVER), str(oracle.library), oracle.description, str(oracle.answers)]
        descriptor = self._listening.fileno()
        self.starts += 1
        try:
            self._running = self._start([*words, str(descriptor)], _ENVIRONMENT, descriptor)
        except Exception:  # of whatever kind: without the process there are no answers, and that is said
            self._refuse()

    def _refuse(self) -> None:
        """Have all who wait, and who will ask, go on without an answer."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    def __enter__(self) -> PlanServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._refuse()
        if self._running is not None:
            self._running.end()
            self._running = None


def _listen(folder: str) -> socket.socket:
    """Listen in a folder; by its descriptor, for an address has room for 107 characters."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    held = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        listening.bind(f"/proc/self/fd/{held}/{_NAME}")
        listening.listen(64)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    finally:
        os.close(held)
    return listening

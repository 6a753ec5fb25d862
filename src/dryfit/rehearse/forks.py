"""dryfit's side of a fork server (`inside.fork_server`): what it is asked for, and what its forks are waited for by."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from dryfit.rehearse.sandbox import messages

_SECONDS_TO_END = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Imports:
    """How far the imports asked for have come; `spoiled` says why no fork can be a fresh start any more, or is ""."""

    count: int
    spoiled: str
    looks_at_card: bool
    environment: dict[str, str]  # what they have changed, see `imported.changes`


class ForkServer:
    """A process to fork rehearsals from, and others that serve one card each.

    Any of its functions may be called from several threads; each raises OSError or EOFError where it has ended.
    """

    def __init__(self, channel: socket.socket, process: subprocess.Popen[bytes] | Forked) -> None:
        self._channel, self._process = channel, process
        self._talking = threading.Lock()
        self._awaited = False
        self._imports = Imports(count=0, spoiled="", looks_at_card=False, environment={})

    def begin_imports(self, names: Sequence[str]) -> None:
        """Have it import modules; everything else waits for that."""
        with self._talking:
            self._send({"names": list(names)})
            self._awaited = True

    def imports(self) -> Imports:
        """Wait for the imports that were begun last."""
        with self._talking:
            return self._await()

    def fork(self, request: messages.Message, descriptors: Sequence[int]) -> Forked:
        """Fork it; `descriptors` are handed to the fork."""
        with self._talking:
            self._await()
            ours, theirs = os.pipe()
            try:
                self._send(request, *descriptors, theirs)
            except BaseException:
                os.close(ours)
                raise
            finally:
                os.close(theirs)
            try:
                return Forked(messages.read(ours)["pid"], ours)
            except BaseException:
                os.close(ours)
                raise

    def bound_to(self, variables: dict[str, str], names: Sequence[str]) -> ForkServer:
        """Another server, forked from this one and in this environment, that imports what looks at the card, too."""
        channel, theirs = socket.socketpair()
        with theirs:
            bound = ForkServer(channel, self.fork({"variables": variables}, [theirs.fileno()]))
        bound.begin_imports(names)
        return bound

    def kill(self) -> None:
        """End it at once, in the middle of an import too."""
        self._process.kill()

    def close(self) -> None:
        """Have it end once its forks have ended."""
        with self._talking:
            self._channel.close()

    def wait(self) -> None:
        """Wait for its end; kill it if it is in the middle of an import."""
        if isinstance(self._process, Forked):
            self._process.wait()
            return
        try:
            self._process.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _send(self, request: messages.Message, *descriptors: int) -> None:
        if descriptors:
            socket.send_fds(self._channel, [b"r"], descriptors)
        else:
            self._channel.send(b"r")
        messages.write(self._channel.fileno(), request)

    def _await(self) -> Imports:
        if self._awaited:
            self._imports = Imports(**messages.read(self._channel.fileno()))
            self._awaited = False
        return self._imports


class Forked:
    """A keeper that is a fork of a server, waited for as `subprocess.Popen` has it."""

    def __init__(self, pid: int, told: int) -> None:
        self.pid = pid
        self._told = told
        self._process = os.pidfd_open(pid)
        self._code: int | None = None

    def wait(self) -> int:
        """Wait for its end; the exit code, negative for a signal."""
        if self._code is None:
            self._ready(self._process, None)
            self._code = -signal.SIGKILL
            if self._ready(self._told, 100):  # the server may be in the middle of an import
                with contextlib.suppress(EOFError):
                    self._code = os.waitstatus_to_exitcode(messages.read(self._told)["status"])
            os.close(self._process)
            os.close(self._told)
        return self._code

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        if self._code is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, signal.SIGKILL)

    @staticmethod
    def _ready(descriptor: int, milliseconds: int | None) -> bool:
        waiting = select.poll()
        waiting.register(descriptor, select.POLLIN)
        return bool(waiting.poll(milliseconds))

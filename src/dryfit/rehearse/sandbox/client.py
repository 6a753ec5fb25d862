"""dryfit's side of the keeper: start a program in the sandbox, watch it, stop it, learn how it ended."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO, Any, Protocol

from dryfit.errors import DryfitError, UsageError
from dryfit.rehearse.sandbox import messages, processes, scratch
from dryfit.rehearse.sandbox.begin import STRENGTHS
from dryfit.rehearse.sandbox.mounts import is_within
from dryfit.rehearse.sandbox.outcome import Ended, Protection
from dryfit.units import GIB, format_bytes

_KEEPER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "keeper.py")
_SECONDS_TO_STOP = 10.0
# Removing a layer takes milliseconds; one with many gigabytes of checkpoints in it nobody need wait for.
_SECONDS_TO_REMOVE = 1.0


class KeeperProcess(Protocol):
    """What is asked of the process that keeps the program; `subprocess.Popen` has it."""

    @property
    def pid(self) -> int: ...
    def wait(self) -> int: ...
    def kill(self) -> None: ...


StartKeeper = Callable[[int, int, int, int, int], KeeperProcess]
"""Starts a keeper with these descriptors: its control, report and lock, and the program's stdout and stderr."""


@dataclass(slots=True)
class Keeper:
    """A running program and the process that keeps it; leaving its `with` block stops it and sees its layer removed."""

    process: KeeperProcess
    scratch: str
    _control: int
    _report: int
    _memory_bytes: int
    _protection: Protection | None = None
    _ended: Ended | None = None
    _received: bytearray = field(default_factory=bytearray)

    @property
    def pid(self) -> int:
        """The keeper's process id; the program's processes are below it."""
        return self.process.pid

    def protection(self) -> Protection:
        """What keeps the program from the real machine; waits for the few milliseconds until that is known.

        Raises:
            DryfitError: the program could not be started at all.
        """
        while self._protection is None and self._ended is None:
            self._receive(None)
        if self._protection is None:
            problem = self._ended.problem if self._ended else ""
            raise DryfitError(problem or "The program was stopped before it had started.")
        return self._protection

    def poll(self) -> Ended | None:
        """How the program ended, or None while it runs."""
        return self.wait(0)

    def wait(self, seconds: float | None = None) -> Ended | None:
        """Wait until the program and every process of it are gone; None if it still runs. Its layer is then going."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while self._ended is None:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._receive(left) and left is not None and left <= 0:
                return None
        return self._ended

    def stop(self) -> Ended:
        """Kill every process of the program at once, without its exit handlers, and return how it ended."""
        if self._control >= 0:
            os.close(self._control)
            self._control = -1
        ended = self.wait(_SECONDS_TO_STOP)
        if ended is None:  # a process in an uninterruptible wait (a dead network disk) holds the keeper up
            self.process.kill()
            ended = self._lost(stopped=True)
        return ended

    def processes(self) -> list[int]:
        """The process ids of the program, all that it started included."""
        return processes.program_processes(self.pid)

    def resident_bytes(self) -> int:
        """The memory that the program's processes hold now, in bytes; see `processes.resident_bytes`."""
        return processes.resident_bytes(self.pid)

    def __enter__(self) -> Keeper:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.stop()
        deadline = time.monotonic() + _SECONDS_TO_REMOVE
        while os.path.exists(self.scratch) and time.monotonic() < deadline:
            time.sleep(0.002)

    def _receive(self, seconds: float | None) -> bool:
        ready, _, _ = select.select([self._report], [], [], seconds)
        if not ready:
            return False
        try:
            message = messages.read(self._report)
        except EOFError:
            self._lost(stopped=False)
            return True
        if message["kind"] == "started":
            self._protection = Protection(
                writes=message["writes"],
                network=message["network"],
                processes=message["processes"],
                read_only=tuple(message["read_only"]),
                failures=tuple(message["failures"]),
            )
            return True
        status = message["status"]
        problem = message["problem"]
        if status is None and not message["stopped"]:
            problem = problem or "The program was not started."
        died = status is not None and os.WIFSIGNALED(status)
        self._finish(
            Ended(
                exit_status=os.WEXITSTATUS(status) if status is not None and not died and not problem else None,
                signal=os.WTERMSIG(status) if died else None,
                stopped=message["stopped"],
                problem=problem,
                peak_host_bytes=message["peak_host_bytes"],
                cpu_seconds=message["cpu_seconds"],
                no_room=self._no_room(message["full"]) if status else "",
            )
        )
        return True

    def _no_room(self, full: str) -> str:
        if full == "memory":
            return (
                "What the program wrote filled the layer in memory that it went to, which holds "
                f"{format_bytes(self._memory_bytes)}. Set TMPDIR to a folder on a local disk: "
                "the layer then lies there."
            )
        if full == "disk":
            base = os.path.dirname(self.scratch)
            return (
                f"The disk of {base}, which what the program writes goes to, was full when the program ended. "
                "Make room there, or set TMPDIR to a folder on a disk that has some."
            )
        return ""

    def _lost(self, stopped: bool) -> Ended:
        code = self.process.wait()
        scratch.remove(self.scratch)  # the keeper does, unless it is killed
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        problem = f"The keeper process {self.pid} ended by {how} before the program did; it was killed with it."
        return self._finish(
            Ended(
                exit_status=None,
                signal=None,
                stopped=stopped,
                problem="" if stopped else problem,
                peak_host_bytes=0,
                cpu_seconds=0.0,
            )
        )

    def _finish(self, ended: Ended) -> Ended:
        self._ended = ended
        self.process.wait()
        if self._control >= 0:
            os.close(self._control)
        os.close(self._report)
        self._control = self._report = -1
        return ended


def start(
    argv: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    allow_writes: bool = False,
    allow_network: bool = False,
    writable: Sequence[str] = (),
    protected: Sequence[str] = (),
    memory_bytes: int = 2 * GIB,
    own_temporary: bool = True,
    pass_fds: Sequence[int] = (),
    stdin: int | IO[bytes] | None = None,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    strongest: str = STRENGTHS[0],
    fork: StartKeeper | None = None,
) -> Keeper:
    """Start a program whose writes, connections and processes stay in a sandbox, and return what keeps it.

    >>> with start(["python", "train.py"], cwd="/home/me/project", env=os.environ) as keeper:   # doctest: +SKIP
    ...     print(keeper.protection().sentences()[0])
    ...     print(keeper.wait().exit_status)
    What the program writes goes to a layer on disk that is thrown away.
    0

    Temporary folders stay real, but not where `cwd`, the home folder or a folder of `protected` (the script's) lies in
    one. `writable` folders are real too; they must exist. `memory_bytes` bounds what is written where the layer has to
    be in memory. With `own_temporary` the program's TMPDIR is a folder of its own that is removed afterwards.
    `strongest` skips the ways of keeping writes away that come before it in `begin.STRENGTHS`; what is then in force,
    and why nothing stronger is, says `Keeper.protection()`. With `fork` the keeper is a fork of a process that is
    prepared to be the program, and nothing is executed; `argv`, `stdout` and `stderr` are then as for a new process.

    Raises:
        UsageError: no scratch folder can be made in the temporary folder; it is full, say.
        OSError: no process can be started.
    """
    spec, lock = specification(
        argv,
        cwd=cwd,
        env=env,
        allow_writes=allow_writes,
        allow_network=allow_network,
        writable=writable,
        protected=protected,
        memory_bytes=memory_bytes,
        own_temporary=own_temporary,
        strongest=strongest,
    )
    if fork is not None:
        spec["argv"] = []
    control_end, control = os.pipe()
    report, report_end = os.pipe()
    try:
        if fork is not None:
            with _descriptors(stdout, stderr) as (out, err):
                process = fork(control_end, report_end, lock, out, err)
        else:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", _KEEPER, str(control_end), str(report_end), str(lock)],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd="/",
                pass_fds=(control_end, report_end, lock, *pass_fds),
                start_new_session=True,
            )
    except BaseException:
        os.close(control)
        os.close(report)
        scratch.remove(spec["scratch"])
        raise
    finally:
        for descriptor in (control_end, report_end, lock):
            os.close(descriptor)
    messages.write(control, spec)
    return Keeper(process, spec["scratch"], control, report, memory_bytes)


def specification(
    argv: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    allow_writes: bool = False,
    allow_network: bool = False,
    writable: Sequence[str] = (),
    protected: Sequence[str] = (),
    memory_bytes: int = 2 * GIB,
    own_temporary: bool = True,
    strongest: str = STRENGTHS[0],
) -> tuple[messages.Message, int]:
    """What `begin` is told of a sandbox, its scratch folder already made, and the lock that says the folder is in use.

    The arguments, and what is raised, are those of `start`.
    """
    kept_away = [folder for folder in _real(cwd, os.path.expanduser("~"), *protected) if os.path.isdir(folder)]
    names = _real(env.get("TMPDIR"), tempfile.gettempdir(), "/tmp", "/var/tmp")
    temporary = [folder for folder in names if _is_temporary(folder)]
    outside = [base for base in temporary if not any(is_within(base, folder) for folder in kept_away)]
    base = (outside or temporary or [os.path.realpath(tempfile.gettempdir())])[0]
    try:
        scratch.sweep(base)
        folder, lock = scratch.make(base)
    except OSError as error:
        raise UsageError(
            f"No scratch folder for what the program writes could be made in {base} ({error.strerror}). "
            "Make room there, or set TMPDIR to another folder, on a disk that has some."
        ) from error
    environment = dict(env)
    if own_temporary:
        environment |= dict.fromkeys(("TMPDIR", "TEMP", "TMP"), f"{folder}/temporary")
    spec: messages.Message = {
        "argv": list(argv),
        "name": argv[0],
        "cwd": cwd,
        "env": environment,
        "allow_writes": allow_writes,
        "allow_network": allow_network,
        "scratch": folder,
        "temporary": temporary,
        "project": os.path.realpath(cwd),
        "protected": kept_away,
        "expected": _folders_named_in(argv, cwd),
        "writable": [os.path.realpath(path) for path in (*writable, f"{folder}/temporary")],
        "memory_bytes": memory_bytes,
        "strongest": strongest if outside or STRENGTHS.index(strongest) else "memory-layers",
        "parent": os.getpid(),
    }
    return spec, lock


@contextlib.contextmanager
def _descriptors(*streams: Any) -> Iterator[list[int]]:
    """Standard streams as `subprocess` takes them (None for its own, DEVNULL, a descriptor) as descriptors."""
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        yield [
            number if stream is None else nothing if stream == subprocess.DEVNULL else stream
            for number, stream in enumerate(streams, start=1)
        ]
    finally:
        os.close(nothing)


def _real(*paths: str | None) -> list[str]:
    return list(dict.fromkeys(os.path.realpath(path) for path in paths if path))


def _folders_named_in(argv: Sequence[str], cwd: str) -> list[str]:
    """The existing folders that arguments such as `--output_dir=/data/runs/7` lead to: it is likely to write there."""
    found = []
    for word in argv[1:]:
        path = word.rpartition("=")[2]
        if "/" not in path or "\0" in path or "\n" in path:
            continue
        folder = os.path.realpath(os.path.join(cwd, path))
        while not os.path.isdir(folder):
            folder = os.path.dirname(folder)
        found.append(folder)
    return found


def _is_temporary(folder: str) -> bool:
    return folder != "/" and os.path.isdir(folder) and os.access(folder, os.W_OK)

"""What joblib calls on a worker: a cell goes to the worker's own process for its program, which stays for the next."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import re
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass

from dryfit.errors import UsageError
from dryfit.plain import from_plain
from dryfit.sweeping.cell import Cell
from dryfit.sweeping.host import Job
from dryfit.sweeping.row import Outcome, outcome_of_error

# Variables that decide what a program takes: a worker's are replaced by those of the machine that asks. Clusters set
# some of them: Ray hides all cards from a worker that asks for none. Secrets stay where they are.
_DECIDES = re.compile(
    r"PYTHONPATH|(?!.*(?:TOKEN|KEY|SECRET|PASSWORD))(?:PYTORCH|TORCH|CUDA|NCCL|CUBLAS|CUDNN|NVIDIA|HF|TRANSFORMERS|DIFFUSERS|ACCELERATE|BNB|TRITON|XFORMERS"
    r"|DRYFIT)_.*"
)
_START = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from dryfit.sweeping.host import main; main()"
_SECONDS_TO_END = 10.0
_SECONDS_BETWEEN_LOOKS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A cell's outcome, and the program's source files that decided it."""

    outcome: Outcome
    files: list[str]


class WorkerStopped(Exception):
    """The worker is being closed; nothing was found out about the cell."""


class _HostEnded(Exception):
    pass


def deciding_variables() -> dict[str, str]:
    """This process's variables that decide what a program takes."""
    return {name: value for name, value in os.environ.items() if _DECIDES.fullmatch(name)}


def run_cell(cell: Cell, job: Job) -> Finished:
    """Rehearse a cell in the warm process that this worker has for its program, or gets now.

    Raises:
        WorkerStopped: the worker was closed meanwhile.
    """
    if job.asker not in (None, os.getpid()):
        _end_with(job.asker)
    try:
        host = _borrow(cell, job)
    except (OSError, UsageError) as error:
        return Finished(outcome=outcome_of_error(error), files=[])
    try:
        finished = host.ask(cell)
    except _HostEnded:
        host.close()
        if host.is_closing:
            raise WorkerStopped from None
        sentence = (
            f"The process that rehearsed {cell} on {os.uname().nodename} has ended; the kernel does that when the "
            "machine's memory is used up. Fewer --jobs, or host-memory in [options], leave more for each."
        )
        return Finished(outcome=Outcome(error="ProcessEnded", error_sentence=sentence), files=[])
    with _lock:
        _free.append(host)
    return finished


def close_all() -> None:
    """End this worker's processes, whatever they are doing."""
    with _lock:
        hosts = list(_all)
    for host in hosts:
        host.is_closing = True
        host.close()


class _Host:
    """A process of `host.py`, for one program of one sweep."""

    def __init__(self, of: str, job: Job) -> None:
        self.of, self.is_closing = of, False
        if not os.path.isdir(job.folder):  # noqa: PTH112
            raise UsageError(
                f"The worker {os.uname().nodename} has no folder {job.folder}, where the program is; put it on a file "
                "system that all workers share, under the same path, and start the sweep there."
            )
        variables = {name: value for name, value in os.environ.items() if not _DECIDES.fullmatch(name)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, json.dumps([folder for folder in sys.path if folder])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=job.folder,
            env=variables | job.variables,
            text=True,
            start_new_session=True,  # Ctrl-C is for the one who asks
        )
        self._say(json.dumps(asdict(job)))
        with _lock:
            _all.append(self)

    def ask(self, cell: Cell) -> Finished:
        """Have a cell rehearsed.

        Raises:
            _HostEnded: the process has ended.
        """
        self._say(
            json.dumps({"words": cell.words, "gpu": cell.gpu, "world": cell.world, "measures": cell.measure_names})
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise _HostEnded
        answer = json.loads(line)
        return Finished(outcome=from_plain(Outcome, answer["outcome"]), files=answer["files"])

    def close(self) -> None:
        """End it: without lines to read it stops what it does, closes its programs, and leaves."""
        with _lock:
            if self not in _all:
                return
            _all.remove(self)
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
        except (OSError, ValueError):
            raise _HostEnded from None


_lock = threading.RLock()
_all: list[_Host] = []
_free: list[_Host] = []


def _borrow(cell: Cell, job: Job) -> _Host:
    """A process for the cell's program that does nothing now; one of another program makes room for it."""
    of = json.dumps([cell.program, asdict(job)], sort_keys=True)
    with _lock:
        host = next((each for each in _free if each.of == of), None)
        if host is not None:
            _free.remove(host)
            return host
        others = list(_free)
        _free.clear()
    for other in others:
        other.close()
    return _Host(of, job)


@functools.cache
def _end_with(asker: int) -> None:
    """Have this worker end when the process that started it has."""
    threading.Thread(target=_watch, args=(asker,), daemon=True).start()


def _watch(asker: int) -> None:
    while os.getppid() == asker:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    close_all()
    os._exit(1)


atexit.register(close_all)

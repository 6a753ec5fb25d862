"""Many rehearsals of one program, of which only the first pays for its imports: the others are forks of a server.

The server (`inside.fork_server`) imports the installed modules that the program imports, before the card is first
looked at, and never runs the program. Each rehearsal is a fork of it in a sandbox of its own, as if it had just been
started. Where that cannot be had, rehearsals are cold, which takes longer and finds the same.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from dryfit.cards import unlimited_card
from dryfit.rehearse import launch
from dryfit.rehearse.assemble import Observed
from dryfit.rehearse.child import Request, folders_of_files, own_kernel_caches, run_once, variables_of
from dryfit.rehearse.command import current_folder
from dryfit.rehearse.events import Event, Orders
from dryfit.rehearse.result import Result
from dryfit.rehearse.sandbox import apart, messages, scratch
from dryfit.rehearse.sandbox.client import specification
from dryfit.virtual_card import CardSettings, environment
from dryfit.virtual_card.settings import settings_of

# Variables that torch and others read when they are imported: a program that sets one itself has to import them itself.
_READ_BY_IMPORTS = (
    "PYTORCH_", "TORCH_", "OMP_", "MKL_", "KMP_", "HF_", "TRANSFORMERS_", "DIFFUSERS_", "BNB_", "TRITON_", "XFORMERS_",
)  # fmt: skip
_MOST_SERVERS = 3
# Until the hooks are there; a Python that finds none of them would run the program, in a layer, to its end.
_SECONDS_TO_START, _SECONDS_TO_END = 60.0, 5.0


@contextlib.contextmanager
def warm_rehearsals(program: Sequence[str | os.PathLike[str]], **options: Any) -> Iterator[WarmRehearsals]:
    """Rehearse one program several times, on any cards and with any arguments, from processes that are warm.

        with warm_rehearsals(["train.py"], steps=3) as rehearse_one:
            for batch in (8, 16, 32):
                rehearse_one(["train.py", "--batch", str(batch)], gpu="l4").peak_reserved_bytes

    `rehearse_one` and the options are those of `dryfit.run`; options given to `rehearse_one` count first. It may be
    called from several threads at once. What is run must be the script or `-m` module of `program`, with no writes
    allowed; anything else is rehearsed cold, as is everything where the kernel has no layers for what imports write:
    `rehearse_one.why_cold` then says why.
    """
    server = _Server([os.fspath(word) for word in program])
    try:
        yield WarmRehearsals(server, options)
    finally:
        server.close()


class WarmRehearsals:
    """What `warm_rehearsals` gives: called with a program's words, it rehearses that."""

    def __init__(self, server: _Server, options: dict[str, Any]) -> None:
        self._server, self._options = server, options

    def __call__(self, program: Sequence[str | os.PathLike[str]], **options: Any) -> Result:
        return launch.rehearse(program, **{**self._options, **options}, run=self._server.run)

    @property
    def why_cold(self) -> str:
        """Why rehearsals are no longer warm; "" while they are."""
        return self._server.cold


class _NoFork(Exception):
    """The server is not there: `why` says the reason."""


class _Server:
    """The fork server of a program: started when the first rehearsal needs it, and taught by each what to import."""

    def __init__(self, program: list[str]) -> None:
        self._entry = _entry(program)
        self._like: Request | None = None
        self._names = _leading_imports(program)
        self._is_complete = False
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._scratch, self._lock = "", -1
        self._changed: dict[str, str] = {}  # by the server's imports, in the environment
        self._variables: dict[str, str] = {}  # that the program sets before its imports, and they read
        self._servers = 0
        self.cold = "" if self._entry else "a command starts its Python processes itself"
        self._talking = threading.Lock()
        self._preparing = ThreadPoolExecutor(1, thread_name_prefix="dryfit-warm")
        self._prepared: Future[None] | None = None

    def run(self, request: Request, card: CardSettings) -> Observed:
        """As `child.run_once`, from a fork of the server where there can be one."""
        if self.cold or not self._serves(request):
            return run_once(request, card)
        try:
            observed = run_once(request, card, fork=functools.partial(self._fork, request))
        except _NoFork:
            return run_once(request, card)
        if self._learns_from(observed):
            return observed
        return run_once(request, card)

    def close(self) -> None:
        """End the server, in the middle of an import too."""
        if (process := self._process) is not None:
            process.kill()
        self._preparing.shutdown()
        with self._talking:
            self._end()

    def _serves(self, request: Request) -> bool:
        """Whether a fork can be what is asked for; the first request decides how the server is started."""
        with self._talking:
            if _entry(list(request.program)) != self._entry or request.allow_writes:
                return False
            if self._like is None:
                self._like = request
                self._prepared = self._preparing.submit(self._prepare, self._names)
            same = ("values", "skip_weights", "exact_weights", "allow_network", "torch")
            return all(getattr(request, name) == getattr(self._like, name) for name in same)

    def _fork(self, request: Request, *descriptors: int) -> _Forked:
        with self._talking:
            if self._prepared is not None:
                self._prepared.result()
            if self._channel is None:
                raise _NoFork
            ours, theirs = os.pipe()
            words = list(request.program)
            asked = {
                "command": list(request.command),
                "arguments": words[2 if words[0] == "-m" else 1 :],
                "learns": not self._is_complete,
            }
            try:
                socket.send_fds(self._channel, [b"f"], [*descriptors, theirs])
                messages.write(self._channel.fileno(), asked)
                os.close(theirs)
                theirs = -1
                return _Forked(messages.read(ours)["pid"], ours)
            except (OSError, EOFError) as error:
                os.close(ours)
                self.cold = "the process to fork from has ended"
                raise _NoFork from error
            finally:
                if theirs >= 0:
                    os.close(theirs)

    def _learns_from(self, observed: Observed) -> bool:
        """Have the server import what this run has imported; false if it had imported too much already."""
        found = [event for events in observed.processes for event in events if event["event"] == "modules"]
        if not found:
            return True
        event: Event = max(found, key=lambda event: len(event["names"]))
        with self._talking:
            set_by_program = {
                name: value
                for name, value in event["environment"].items()
                if self._changed.get(name) != value and name.startswith(_READ_BY_IMPORTS)
            }
            if set_by_program != self._variables:
                imported = any(name.partition(".")[0] not in sys.stdlib_module_names for name in self._names)
                if imported or event["before_torch"].items() < set_by_program.items():
                    self.cold = f"the program sets {min(set_by_program or self._variables)}, which its imports read"
                    return not imported
                self._variables = set_by_program
                self._end()
            if event["names"] and not self._is_complete:
                self._is_complete = True
                self._names = [*self._names, *(name for name in event["names"] if name not in self._names)]
                self._prepared = self._preparing.submit(self._prepare, self._names)
        return True

    def _prepare(self, names: list[str]) -> None:
        """Have a server that has imported these modules, or as many of them as leave it as a fresh start."""
        while not self.cold:
            try:
                if self._channel is None:
                    self._start()
                reply = self._ask({"names": names})
            except (OSError, EOFError) as error:
                self.cold = f"the process to fork from has ended ({error})"
                break
            self._changed = reply["environment"]
            if not reply["spoiled"]:
                return
            self._end()
            self._names = names = names[: reply["count"]]
            self._is_complete = True
            if self._servers >= _MOST_SERVERS:
                self.cold = reply["spoiled"]
        self._end()

    def _start(self) -> None:
        assert self._like is not None
        request = self._like
        self._servers += 1
        orders = Orders(
            folder="", values=request.values, skip_weights=request.skip_weights, exact_weights=request.exact_weights
        )
        card = environment(settings_of(unlimited_card()), request.torch)
        variables = variables_of(card, orders, allow_network=request.allow_network)
        kernels = own_kernel_caches(variables)
        spec, self._lock = specification(
            request.command,
            cwd=str(current_folder()),
            env={**variables, **self._variables},
            allow_network=request.allow_network,
            writable=[str(kernels)],
            protected=folders_of_files(request.command),
        )
        self._scratch = spec["scratch"]
        self._channel, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", apart.__file__, str(theirs.fileno())],
                cwd="/",
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        messages.write(self._channel.fileno(), spec)
        self.cold = messages.read(self._channel.fileno())["refused"]
        if not self.cold:
            self._channel.settimeout(_SECONDS_TO_START)
            self._channel.recv(1, socket.MSG_PEEK)
            self._channel.settimeout(None)
            messages.read(self._channel.fileno())

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._channel is not None
        self._channel.send(b"n")
        messages.write(self._channel.fileno(), request)
        return messages.read(self._channel.fileno())

    def _end(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            try:
                self._process.wait(_SECONDS_TO_END)
            except subprocess.TimeoutExpired:  # in the middle of an import
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._lock >= 0:
            scratch.remove(self._scratch)
            os.close(self._lock)
            self._lock = -1


class _Forked:
    """A keeper that is a fork of the server, waited for as `subprocess.Popen` has it."""

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
        if self._code is None:
            signal.pidfd_send_signal(self._process, signal.SIGKILL)

    @staticmethod
    def _ready(descriptor: int, milliseconds: int | None) -> bool:
        waiting = select.poll()
        waiting.register(descriptor, select.POLLIN)
        return bool(waiting.poll(milliseconds))


def _entry(program: Sequence[str]) -> tuple[str, ...]:
    """What Python is started with, without arguments: the script, or -m and the module; () for a command."""
    if program[:1] == ["-m"]:
        return tuple(program[:2]) if len(program) > 1 else ()
    path = Path(program[0]) if program else Path()
    return (program[0],) if program and (path.is_dir() or path.suffix == ".py") else ()


def _leading_imports(program: Sequence[str]) -> list[str]:
    """The installed modules that a script imports before it does anything else: a server can do that at once."""
    path = Path(program[0]) if program else Path()
    if path.suffix != ".py":
        return []
    try:
        body = ast.parse(path.read_bytes()).body
    except (OSError, ValueError, SyntaxError):
        return []  # to be found and said by the rehearsal
    found: list[str] = []
    own = {entry.stem for entry in path.resolve().parent.iterdir()}
    for statement in body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        if isinstance(statement, ast.Import):
            names = [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            names = [statement.module] if statement.module != "__future__" else []
        else:
            break
        if any(name.partition(".")[0] in own for name in names):
            break  # what the program's own files do then, is not known
        found += names
    if "torch" in found:
        found.append("torch._dynamo")  # any optimizer of torch's imports it
    return found

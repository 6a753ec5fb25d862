"""Many rehearsals of one program, of which only the first pays for its imports: the others are forks of a server.

The server (`inside.fork_server`) imports the installed modules that the program imports, before the card is first
looked at, and never runs the program. Each rehearsal is a fork of it in a sandbox of its own, as if it had just been
started. Where that cannot be had, rehearsals are cold, which takes longer and finds the same.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from dryfit.cards import unlimited_card
from dryfit.rehearse import callables, launch
from dryfit.rehearse.assemble import Observed
from dryfit.rehearse.child import Request, folders_of_files, own_kernel_caches, run_once, variables_of
from dryfit.rehearse.command import current_folder
from dryfit.rehearse.events import ORDERS_VARIABLE, Event, Orders
from dryfit.rehearse.forks import Forked, ForkServer
from dryfit.rehearse.result import Result
from dryfit.rehearse.sandbox import apart, messages, scratch
from dryfit.rehearse.sandbox.client import specification
from dryfit.virtual_card import CardSettings, environment
from dryfit.virtual_card.settings import settings_of

# Variables that torch and others read when they are imported: a program that sets one itself has to import them itself.
_READ_BY_IMPORTS = (
    "PYTORCH_", "TORCH_", "OMP_", "MKL_", "KMP_", "HF_", "TRANSFORMERS_", "DIFFUSERS_", "BNB_", "TRITON_", "XFORMERS_",
)  # fmt: skip
# The one that the virtual card reads when it is first looked at.
_READ_WITH_THE_CARD = "CUDA_VISIBLE_DEVICES"
_MOST_SERVERS = 3
_MOST_BOUND = 4  # each takes some 200 MB that it does not share
# Until the hooks are there; a Python that finds none of them would run the program, in a layer, to its end.
_SECONDS_TO_START = 60.0


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
    """The server is not there."""


class _Server:
    """The fork server of a program: started when the first rehearsal needs it, and taught by each what to import.

    Modules that look at the card when they are imported it leaves to forks of its own, each of which serves the
    rehearsals in one environment, the card's settings among it.
    """

    def __init__(self, program: list[str]) -> None:
        self._entry = _entry(program)
        self._like: Request | None = None
        self._names = _leading_imports(program)
        self._names_after_card: list[str] = []
        self._is_complete = False
        self._server: ForkServer | None = None
        self._bound: dict[tuple[tuple[str, str], ...], ForkServer] = {}  # the one used last comes last
        self._let_go: list[ForkServer] = []
        self._temporary: dict[str, str] = {}  # folders of the server's own
        self._scratch, self._lock = "", -1
        self._changed: dict[str, str] = {}  # by the server's imports, in the environment
        self._variables: dict[str, str] = {}  # that the program sets before its imports, and they read
        self._visible: dict[str, str] = {}  # that it sets before they look at the card
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
            observed = run_once(request, card, fork=functools.partial(self._fork, request, card))
        except _NoFork:
            return run_once(request, card)
        if self._learns_from(observed):
            return observed
        return run_once(request, card)

    def close(self) -> None:
        """End the servers, in the middle of an import too."""
        for server in [*self._let_go, *self._bound.values(), self._server]:
            if server is not None:
                server.kill()
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
            same = ("values", "skip_weights", "exact_weights", "assume", "allow_network", "torch")
            return all(getattr(request, name) == getattr(self._like, name) for name in same)

    def _fork(self, request: Request, card: CardSettings, *descriptors: int) -> Forked:
        words = list(request.program)
        with self._talking:
            if self._prepared is not None:
                self._prepared.result()
            if (server := self._server) is None:
                raise _NoFork
            asked = {
                "command": list(request.command),
                "arguments": words[2 if words[0] == "-m" else 1 :],
                "learns": not self._is_complete,
            }
            bound = self._bound_to(request, card) if self._names_after_card else None
        if bound is not None and self._has_imported(bound):
            with contextlib.suppress(OSError, EOFError):  # it was let go meanwhile, or has ended
                return bound.fork(asked, descriptors)
        try:
            return server.fork(asked, descriptors)
        except (OSError, EOFError) as error:
            self.cold = "the process to fork from has ended"
            raise _NoFork from error

    def _bound_to(self, request: Request, card: CardSettings) -> ForkServer | None:
        """The server for this card and what else is in the environment; None where none can be made."""
        assert self._server is not None
        variables = _variables_of(request, card, measures=request.measures)
        variables |= request.world.variables() if request.world is not None else {}  # some imports read them
        key = tuple(sorted(variables.items()))
        bound = self._bound.pop(key, None)
        if bound is None:
            if len(self._bound) >= _MOST_BOUND:
                longest_unused = self._bound.pop(next(iter(self._bound)))
                longest_unused.close()
                self._let_go.append(longest_unused)
            in_it = {**variables, **self._variables, **self._visible, **self._temporary}
            try:
                bound = self._server.bound_to(in_it, self._names_after_card)
            except (OSError, EOFError):
                return None
        self._bound[key] = bound
        return bound

    def _has_imported(self, bound: ForkServer) -> bool:
        """Wait for its imports; false if they have spoiled it, and then the next one will import less."""
        try:
            imports = bound.imports()
        except (OSError, EOFError):  # it was let go meanwhile, or an import has ended it
            count = 0
        else:
            if not imports.spoiled:
                return True
            count = imports.count
        with self._talking:
            if bound in self._bound.values():
                self._let_go_of_bound()
                self._names_after_card = self._names_after_card[:count]
        return False

    def _learns_from(self, observed: Observed) -> bool:
        """Have the server import what this run has imported; false if it had imported too much already."""
        found = [event for events in observed.processes for event in events if event["event"] == "modules"]
        if not found:
            return True
        event: Event = max(found, key=lambda event: len(event["names"]) + len(event["after_card"]))
        changed, before_torch = event["environment"], event["before_torch"].items()
        visible = {name: value for name, value in changed.items() if name == _READ_WITH_THE_CARD}
        with self._talking:
            set_by_program = {
                name: value
                for name, value in changed.items()
                if self._changed.get(name) != value and name.startswith(_READ_BY_IMPORTS)
            }
            if set_by_program != self._variables:
                imported = any(name.partition(".")[0] not in sys.stdlib_module_names for name in self._names)
                if imported or not set_by_program.items() <= before_torch:
                    self.cold = f"the program sets {min(set_by_program or self._variables)}, which its imports read"
                    return not imported
                self._variables = set_by_program
                self._end()
            if (event["names"] or event["after_card"]) and not self._is_complete:
                self._is_complete = True
                self._names = [*self._names, *(name for name in event["names"] if name not in self._names)]
                if visible.items() <= before_torch and "" not in visible.values():
                    self._visible, self._names_after_card = visible, event["after_card"]
                self._prepared = self._preparing.submit(self._prepare, self._names)
            elif self._names_after_card and visible != self._visible:
                self._let_go_of_bound()
                self._names_after_card = []
                return False
        return True

    def _prepare(self, names: list[str]) -> None:
        """Have a server that has imported these modules, or as many of them as leave it as a fresh start."""
        while not self.cold:
            try:
                server = self._server or self._start()
                if server is None:
                    break
                server.begin_imports(names)
                imports = server.imports()
            except (OSError, EOFError) as error:
                self.cold = f"the process to fork from has ended ({error})"
                break
            self._changed = imports.environment
            if not imports.spoiled:
                return
            self._end()
            if imports.looks_at_card and self._is_complete:
                self._names_after_card = [*names[imports.count :], *self._names_after_card]
            elif not imports.looks_at_card:
                self._is_complete = True
            self._names = names = names[: imports.count]
            if self._servers >= _MOST_SERVERS:
                self.cold = imports.spoiled
        self._end()

    def _start(self) -> ForkServer | None:
        assert self._like is not None
        self._servers += 1
        variables = _variables_of(self._like, settings_of(unlimited_card()), measures=())
        spec, self._lock = specification(
            self._like.command,
            cwd=str(current_folder()),
            env={**variables, **self._variables},
            allow_network=self._like.allow_network,
            writable=[str(own_kernel_caches(variables))],
            protected=folders_of_files(self._like.command),
        )
        self._scratch = spec["scratch"]
        self._temporary = {name: spec["env"][name] for name in ("TMPDIR", "TEMP", "TMP")}
        channel, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", apart.__file__, str(theirs.fileno())],
                cwd="/",
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        server = self._server = ForkServer(channel, process)
        messages.write(channel.fileno(), spec)
        self.cold = messages.read(channel.fileno())["refused"]
        if self.cold:
            return None
        channel.settimeout(_SECONDS_TO_START)
        channel.recv(1, socket.MSG_PEEK)
        channel.settimeout(None)
        messages.read(channel.fileno())
        return server

    def _let_go_of_bound(self) -> None:
        for bound in self._bound.values():
            bound.close()
        self._let_go += self._bound.values()
        self._bound.clear()

    def _end(self) -> None:
        self._let_go_of_bound()
        for bound in self._let_go:
            bound.kill()
            bound.wait()
        self._let_go.clear()
        if self._server is not None:
            self._server.close()
            self._server.wait()
            self._server = None
        if self._lock >= 0:
            scratch.remove(self._scratch)
            os.close(self._lock)
            self._lock = -1


def _variables_of(request: Request, card: CardSettings, *, measures: Sequence[str]) -> dict[str, str]:
    """The environment of a server for this request on this card."""
    orders = Orders(
        folder="",
        values=request.values,
        skip_weights=request.skip_weights,
        exact_weights=request.exact_weights,
        assume=request.assume,
        recording=False,  # of the imports; each fork begins one
    )
    measured = dataclasses.replace(orders, measures=tuple(measures))
    variables = variables_of(environment(card, request.torch), measured, allow_network=request.allow_network)
    own_kernel_caches(variables)
    return variables | {ORDERS_VARIABLE: orders.to_text()}


def _entry(program: Sequence[str]) -> tuple[str, ...]:
    """What Python is started with, without arguments: the script, or -m and the module; () for a command."""
    if program[:1] == ["-m"]:
        return tuple(program[:2]) if len(program) > 1 else ()
    path = Path(program[0]) if program else Path()
    return (program[0],) if program and (path.is_dir() or path.suffix == ".py") else ()


def _leading_imports(program: Sequence[str]) -> list[str]:
    """The installed modules that a script imports before it does anything else: a server can do that at once."""
    if callables.is_call(program):
        named, file = callables.imports_of(program)
        leading = list(dict.fromkeys([*named, *(_leading_imports([file]) if file else [])]))
        return [*leading, "torch._dynamo"] if "torch" in leading else leading
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

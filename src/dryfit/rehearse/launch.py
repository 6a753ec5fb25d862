"""The parent side of a rehearsal: starts the program with the card in front, watches its limits, reads what it left."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from dryfit.cards import Card, find_card
from dryfit.errors import DryfitError, UsageError
from dryfit.rehearse import sandbox
from dryfit.rehearse.assemble import Observed, assemble
from dryfit.rehearse.command import command_line, search_path
from dryfit.rehearse.events import ORDERS_VARIABLE, Orders, read_events
from dryfit.rehearse.inside.bootstrap import STOP_SIGNAL
from dryfit.rehearse.places import is_of_the_program
from dryfit.rehearse.progress import ProgressLine
from dryfit.rehearse.result import Result
from dryfit.units import format_bytes
from dryfit.virtual_card import environment, installed_torch
from dryfit.virtual_card.settings import settings_of

_HOOK_FOLDER = Path(__file__).parent / "inside" / "hook"
_STDERR = 2  # the descriptor, not `sys.stderr`, which a notebook replaces
_POLL_SECONDS = 0.02
_MEMORY_POLL_SECONDS = 0.25
# How long a process may take to write its last event after it was told to stop.
_LAST_WORD_SECONDS = 3.0

# Services the program may report to. In a rehearsal there is nothing to report, and a client without a network
# would retry for minutes; each of these is the service's own switch for staying offline.
_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "WANDB_MODE": "offline",
    "COMET_MODE": "offline",
    "NEPTUNE_MODE": "offline",
    "CLEARML_OFFLINE_MODE": "1",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}


def rehearse(
    program: Sequence[str],
    *,
    gpu: str | None = None,
    memory_bytes: int | None = None,
    address_order: str = "linux",
    steps: int | str | None = None,
    seconds: float = 600.0,
    host_memory_bytes: int | None = None,
    allow_writes: bool = False,
    allow_network: bool = False,
    skip_weights: bool = False,
    values: bool = True,
    quiet: bool = False,
    progress: TextIO | None = None,
) -> Result:
    """Run a program on a virtual card, in a process of its own, and say what it took.

        result = dryfit.run(["train.py", "--lr", "3e-4"], gpu="rtx-4090")
        result.verdict, result.peak_reserved_bytes

    `program` is a script and its arguments, `-m` and a module, or a command that starts Python. `gpu` is a card's
    name; without one DRYFIT_GPU counts, and without that the card is unlimited and the result names the cards that
    fit. `steps` is a number, "all", or None: until the peak has been steady for two steps. The program's own output
    goes to stderr; `quiet` hides it. `progress` is a terminal to draw a progress line on.

    Raises:
        UsageError: no such program, no such card, a torch without CUDA, a setting out of range.
    """
    card, named = _card(gpu, memory_bytes)
    command = command_line(list(program))
    torch = installed_torch()
    limits = _Limits.checked(seconds, host_memory_bytes)
    wanted_steps = _steps(steps)
    with tempfile.TemporaryDirectory(prefix="dryfit-events-") as folder:
        events = Path(folder)
        orders = Orders(folder=folder, steps=wanted_steps, values=values, skip_weights=skip_weights)
        settings = settings_of(card, address_order=address_order)
        variables = _variables(environment(settings, torch), orders, allow_network=allow_network)
        kernels = _own_kernel_caches(variables)
        began = time.monotonic()
        with sandbox.start(
            command,
            cwd=str(Path.cwd()),
            env=variables,
            allow_writes=allow_writes,
            allow_network=allow_network,
            writable=[folder, str(kernels)],
            protected=[str(path.resolve().parent) for path in _files_of(command)],
            stdout=subprocess.DEVNULL if quiet else _STDERR,
            stderr=subprocess.DEVNULL if quiet else None,
        ) as keeper:
            protection = keeper.protection()
            stopped_by = _watch(keeper, limits, ProgressLine(progress, events), events)
            ended = keeper.stop() if stopped_by else keeper.wait()
        if ended is None or ended.problem:
            raise DryfitError(ended.problem if ended else "The program's end was never reported.")
        observed = Observed(
            program=list(program),
            processes=[list(read_events(path)) for path in sorted(events.glob("*.jsonl"))],
            status=ended.exit_status,
            signal=ended.signal,
            stopped_by=stopped_by,
            limit=limits.words(stopped_by),
            crash_place=_crash_place(events),
            wall_seconds=time.monotonic() - began,
            notes=_protection_notes(protection, allow_writes=allow_writes),
        )
    return assemble(observed, card, card_was_named=named)


def _card(gpu: str | None, memory_bytes: int | None) -> tuple[Card, bool]:
    """The card asked for, and whether one was: the unlimited card stands in for none."""
    name = gpu or os.environ.get("DRYFIT_GPU")
    if name:
        return find_card(name, memory_bytes=memory_bytes), True
    return find_card("unlimited", memory_bytes=memory_bytes), memory_bytes is not None


def _steps(steps: int | str | None) -> int | None:
    """As `Orders.steps` has it: a number, 0 for all, None for until steady."""
    if steps is None or steps == "all":
        return None if steps is None else 0
    try:
        number = int(steps)
    except ValueError:
        number = 0
    if number < 1:
        raise UsageError(f"--steps {steps} is neither a number of optimiser steps, 1 or more, nor `all`.")
    return number


def _variables(card: dict[str, str], orders: Orders, *, allow_network: bool) -> dict[str, str]:
    """The program's environment: the user's own, the card's, our hooks first on the Python path."""
    variables = {name: value for name, value in os.environ.items() if name != "DRYFIT_GPU"}
    variables |= card
    if not allow_network:
        variables |= _OFFLINE
    variables["PATH"] = search_path()
    variables[ORDERS_VARIABLE] = orders.to_text()
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_HOOK_FOLDER), variables.get("PYTHONPATH"))))
    return variables


def _own_kernel_caches(variables: dict[str, str]) -> Path:
    """Keep compiled kernels from one rehearsal to the next, apart from the user's own caches.

    The virtual card times all candidates of an autotuned kernel the same, and that choice must not reach a real run.
    """
    kernels = Path(tempfile.gettempdir()) / f"dryfit-kernels-{os.getuid()}"
    kernels.mkdir(mode=0o700, exist_ok=True)
    if kernels.stat().st_uid != os.getuid():
        raise UsageError(f"{kernels} belongs to another user; remove it, or set TMPDIR to a folder of your own.")
    variables["TORCHINDUCTOR_CACHE_DIR"] = str(kernels / "inductor")
    variables["TRITON_CACHE_DIR"] = str(kernels / "triton")
    return kernels


def _files_of(command: Sequence[str]) -> list[Path]:
    """The words of a command that are files, such as the script: what lies beside them is protected too."""
    return [path for path in map(Path, command[1:]) if path.is_file()]


def _protection_notes(protection: sandbox.Protection, *, allow_writes: bool) -> list[str]:
    """Say what keeps writes away where it is less than a throw-away layer; a person has to know then."""
    if allow_writes or (protection.writes == "layers" and protection.network != "audit-hook"):
        return []
    return [*protection.sentences(), *protection.failures]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    seconds: float
    host_memory_bytes: int

    @classmethod
    def checked(cls, seconds: float, host_memory_bytes: int | None) -> _Limits:
        if not seconds > 0:
            raise UsageError(f"--seconds {seconds:g} leaves no time to run the program; give a number above 0.")
        if host_memory_bytes is None:
            host_memory_bytes = int(0.9 * _available_bytes())
        return cls(seconds=seconds, host_memory_bytes=host_memory_bytes)

    def words(self, stopped_by: str | None) -> str:
        return {
            "time limit": f"{self.seconds:g} seconds",
            "host memory": format_bytes(self.host_memory_bytes),
        }.get(stopped_by or "", "")


def _available_bytes() -> int:
    """Memory this machine can give without swapping, as the kernel estimates it."""
    found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    return int(found[1]) << 10 if found else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _watch(keeper: sandbox.Keeper, limits: _Limits, line: ProgressLine, events: Path) -> str | None:
    """Wait for the program to end; stop it at a limit or at Ctrl-C, and say which."""
    began = looked_at_memory = time.monotonic()
    stopped_by = None
    try:
        while keeper.wait(_POLL_SECONDS) is None:
            now = time.monotonic()
            if now - began > limits.seconds:
                stopped_by = "time limit"
            elif now - looked_at_memory > _MEMORY_POLL_SECONDS:
                looked_at_memory = now
                if keeper.resident_bytes() > limits.host_memory_bytes:
                    stopped_by = "host memory"
            if stopped_by:
                break
            line.update()
    except KeyboardInterrupt:
        stopped_by = "interrupted"
    finally:
        line.clear()
    if stopped_by:
        _ask_for_last_words(events, keeper)
    return stopped_by


def _ask_for_last_words(events: Path, keeper: sandbox.Keeper) -> None:
    """Have every process with hooks write what it knows and leave; one stuck in native code is not waited for."""
    asked = [pid for pid in keeper.processes() if _catches(pid, STOP_SIGNAL)]
    for pid in asked:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, STOP_SIGNAL)
    deadline = time.monotonic() + _LAST_WORD_SECONDS
    while time.monotonic() < deadline and sum(map(_has_ended, events.glob("*.jsonl"))) < len(asked):
        time.sleep(_POLL_SECONDS)


def _catches(pid: int, signal: int) -> bool:
    """Whether a process has a handler for a signal: ours, for no program handles this one by chance."""
    try:
        found = re.search(r"SigCgt:\s*([0-9a-f]+)", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return False
    return bool(found and int(found[1], 16) >> (signal - 1) & 1)


def _has_ended(path: Path) -> bool:
    return any(event["event"] == "end" for event in read_events(path))


def _crash_place(events: Path) -> tuple[str, int] | None:
    """Where a crashed process was, from what faulthandler wrote: the innermost line of the program's own."""
    for path in events.glob("*.fault"):
        frames = re.findall(r'File "([^"]+)", line (\d+)', path.read_text(errors="replace"))
        own = [(file, int(line)) for file, line in frames if is_of_the_program(file)]
        if own:
            return own[0]
    return None

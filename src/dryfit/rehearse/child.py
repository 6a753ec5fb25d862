"""One run of the program in its sandbox, with the card in front and our hooks in its Python processes."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from dryfit.errors import DryfitError, UsageError
from dryfit.measures.catalogue import measures_of
from dryfit.places import is_of_the_program
from dryfit.rehearse import sandbox
from dryfit.rehearse.assemble import Observed
from dryfit.rehearse.command import current_folder, search_path
from dryfit.rehearse.events import ORDERS_VARIABLE, Event, EventFolder, Orders
from dryfit.rehearse.footprints import recordings_in
from dryfit.rehearse.inside.bootstrap import STOP_SIGNAL
from dryfit.rehearse.limits import HOST_MEMORY, INTERRUPTED, TIME, Limits
from dryfit.rehearse.plans import plan_server
from dryfit.rehearse.progress import ProgressLine
from dryfit.rehearse.sandbox import scratch
from dryfit.rehearse.sandbox.client import StartKeeper
from dryfit.rehearse.world import World
from dryfit.virtual_card import CardSettings, TorchBuild, environment
from dryfit.virtual_card.cudnn import Oracle, PlanServer, oracle_for
from dryfit.virtual_card.paths import listable

_HOOK_FOLDER = Path(__file__).parent / "inside" / "hook"
_STDERR = 2  # the descriptor, not `sys.stderr`, which a notebook replaces
_POLL_SECONDS = 0.02
_LOOK_SECONDS = 0.25
# How long a process may take to write its last event after it was told to stop, and its recording after that.
_LAST_WORD_SECONDS = 3.0
_RECORDING_SECONDS = 60.0
# How long all processes may be silent after one has seen enough.
_SILENT_SECONDS = 10.0

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
# Values of the user's own that keep these services offline too.
_STAYS_OFFLINE = ("1", "true", "True", "offline", "disabled", "dryrun")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is run and how; the same for every run of a rehearsal. `steps` is as in `events.Orders`."""

    program: Sequence[str]
    command: Sequence[str]
    torch: TorchBuild
    limits: Limits
    steps: int | None
    values: bool
    skip_weights: bool
    allow_writes: bool
    allow_network: bool
    quiet: bool
    progress: TextIO | None
    stop: threading.Event | None = None
    recording: bool = True
    measures: tuple[str, ...] = ()
    facts: bool = False
    observe: bool = False
    watch: bool = False
    longest: str = ""
    assume: tuple[str, ...] = ()
    exact_weights: bool = False
    real_card: bool = False  # the card is asked, and does not count for us
    world: World | None = None  # the rank that the program plays alone
    shown: tuple[str, ...] = ()  # in place of `program`


def run_once(request: Request, card: CardSettings | None, *, fork: StartKeeper | None = None) -> Observed:
    """Run the program on a card, to its end, its steady peak or a limit, and say what was seen.

    Without a card it runs for real, on those of this machine. With `fork` the program is a fork of a process that has
    imported its modules, see `warm`.

    Raises:
        DryfitError: the program could not be started.
    """
    _open_standard_streams()
    with folder_of_our_own() as folder:
        events = EventFolder(Path(folder))
        orders = Orders(
            folder=folder,
            steps=request.steps,
            values=request.values,
            skip_weights=request.skip_weights,
            recording=request.recording,
            modules=fork is not None,
            measures=request.measures,
            facts=request.facts,
            observe=request.observe,
            watch=request.watch,
            longest=request.longest,
            assume=request.assume,
            exact_weights=request.exact_weights,
            real_card=request.real_card,
            world=request.world,
        )
        of_card = environment(card, request.torch) if card is not None else {}
        variables = variables_of(of_card, orders, allow_network=request.allow_network)
        caches = [str(own_kernel_caches(variables))] if card is not None else []
        oracle = oracle_for(card, request.torch) if card is not None else Oracle()
        began = time.monotonic()
        with (
            plan_server(folder, oracle) as plans,
            sandbox.start(
                request.command,
                cwd=str(current_folder()),
                env=variables | plans.variables,
                allow_writes=request.allow_writes,
                allow_network=request.allow_network,
                writable=[folder, *caches],
                protected=folders_of_files(request.command),
                stdout=subprocess.DEVNULL if request.quiet else _STDERR,
                stderr=subprocess.DEVNULL if request.quiet else None,
                fork=fork,
            ) as keeper,
        ):
            protection = keeper.protection()
            stopped_by = _watch(keeper, plans, request, ProgressLine(request.progress, events), events)
            ended = keeper.poll() or keeper.stop()
        if ended.problem:
            raise DryfitError(ended.problem)
        recordings, unreadable = recordings_in(Path(folder))
        return Observed(
            program=list(request.shown or request.program),
            processes=_without_faults(events.read()),
            status=ended.exit_status,
            signal=ended.signal,
            stopped_by=stopped_by,
            limit=request.limits.in_words(stopped_by),
            crash_place=_crash_place(Path(folder)),
            devices=card.count if card is not None else 1,
            wall_seconds=time.monotonic() - began,
            notes=[*protection.warnings(), *filter(None, (ended.no_room, request.torch.doubt)), *unreadable],
            total_bytes=card.memory_bytes if card is not None else 0,
            recordings=recordings,
            plans_doubt=oracle.doubt,
        )


def variables_of(card: dict[str, str], orders: Orders, *, allow_network: bool) -> dict[str, str]:
    """The program's environment: the user's own, the card's, our hooks first on the Python path."""
    variables = {name: value for name, value in os.environ.items() if name != "DRYFIT_GPU"}
    variables |= card
    if not allow_network:
        variables |= {name: value for name, value in _OFFLINE.items() if variables.get(name) not in _STAYS_OFFLINE}
    if orders.world is not None:
        variables |= orders.world.variables()
    variables["PATH"] = search_path()
    for measure, option in measures_of(orders.measures):
        variables |= measure.variables(variables, option)
    variables[ORDERS_VARIABLE] = orders.to_text()
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, (str(listable(_HOOK_FOLDER)), variables.get("PYTHONPATH"))))
    return variables


def _open_standard_streams() -> None:
    """Have descriptors 0 to 2 open, as a daemon may not: pipes of ours would take their numbers, and be lost."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


@contextlib.contextmanager
def folder_of_our_own() -> Iterator[str]:
    """A folder for the events that the program's processes can write to; if dryfit is killed, a later run removes it.

    Raises:
        UsageError: no temporary folder can be written to.
    """
    try:
        folder, lock = scratch.make(str(_temporary_folder()))
    except OSError as error:
        raise UsageError(
            f"No folder for the events of the rehearsal could be made in {_temporary_folder()} ({error.strerror}); "
            "make room there, or set TMPDIR to another folder."
        ) from error
    try:
        yield f"{folder}/temporary"
    finally:
        scratch.remove(folder)
        os.close(lock)


def _temporary_folder() -> Path:
    """The temporary folder, but none in /dev: the program gets a /dev/shm of its own."""
    asked = Path(tempfile.gettempdir()).resolve()
    return Path("/tmp") if asked.is_relative_to("/dev") else asked


def own_kernel_caches(variables: dict[str, str]) -> Path:
    """Keep compiled kernels from one rehearsal to the next, apart from the user's own caches.

    The virtual card times all candidates of an autotuned kernel the same, and that choice must not reach a real run.
    """
    kernels = _temporary_folder() / f"dryfit-kernels-{os.getuid()}"
    kernels.mkdir(mode=0o700, exist_ok=True)
    if kernels.stat().st_uid != os.getuid():
        raise UsageError(f"{kernels} belongs to another user; remove it, or set TMPDIR to a folder of your own.")
    variables["TORCHINDUCTOR_CACHE_DIR"] = str(kernels / "inductor")
    variables["TRITON_CACHE_DIR"] = str(kernels / "triton")
    return kernels


def folders_of_files(command: Sequence[str]) -> list[str]:
    """The folders of the words of a command that are files, such as the script: they are protected too."""
    files = (word for word in command[1:] if os.path.isfile(word))  # noqa: PTH113 - false for a word that no path can be
    return [str(Path(file).resolve().parent) for file in files]


def _without_faults(processes: list[list[Event]]) -> list[list[Event]]:
    """The events as they are.

    Raises:
        DryfitError: our hooks failed in one of the processes.
    """
    for event in (event for events in processes for event in events if event["event"] == "fault"):
        raise DryfitError(
            "The hooks on torch failed. This is our fault; please report it with the version of torch, the program, "
            f"and these lines:\n{event['trace']}"
        )
    return processes


def _watch(
    keeper: sandbox.Keeper, plans: PlanServer, request: Request, line: ProgressLine, events: EventFolder
) -> str | None:
    """Wait for the program to end; stop it at a limit, at Ctrl-C or when it is asked to, and say which.

    Once one process has seen enough, the others may go on as long as they get on; one that waits for a rank that has
    left does not.
    """
    began = looked = time.monotonic()
    stopped_by = None
    try:
        while keeper.wait(_POLL_SECONDS) is None:
            plans.look()
            now = time.monotonic()
            if request.stop is not None and request.stop.is_set():
                stopped_by = INTERRUPTED
            elif now - began > request.limits.seconds:
                stopped_by = TIME
            elif now - looked > _LOOK_SECONDS:
                looked = now
                if keeper.resident_bytes() > request.limits.host_memory_bytes:
                    stopped_by = HOST_MEMORY
                line.update()
                if events.one_saw_enough() and events.seconds_silent() > _SILENT_SECONDS:
                    break
            if stopped_by:
                break
    except KeyboardInterrupt:
        stopped_by = INTERRUPTED
    finally:
        line.clear()
    if keeper.poll() is None:
        _ask_for_last_words(keeper, events)
    return stopped_by


def _ask_for_last_words(keeper: sandbox.Keeper, events: EventFolder) -> None:
    """Have every process with hooks write what it knows and leave; one stuck in native code is not waited for."""
    for pid in keeper.processes():
        if _catches(pid, STOP_SIGNAL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, STOP_SIGNAL)
    began = time.monotonic()
    while listening := [pid for pid in keeper.processes() if _catches(pid, STOP_SIGNAL)]:
        waited = time.monotonic() - began
        if waited > _RECORDING_SECONDS or (waited > _LAST_WORD_SECONDS and not events.have_ended(listening)):
            return
        time.sleep(_POLL_SECONDS)


def _catches(pid: int, signal: int) -> bool:
    """Whether a process has a handler for a signal: ours, for no program handles this one by chance."""
    try:
        found = re.search(r"SigCgt:\s*([0-9a-f]+)", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return False
    return bool(found and int(found[1], 16) >> (signal - 1) & 1)


def _crash_place(folder: Path) -> tuple[str, int] | None:
    """Where a crashed process was, from what faulthandler wrote: the innermost line of the program's own."""
    for path in folder.glob("*.fault"):
        frames = re.findall(r'File "([^"]+)", line (\d+)', path.read_text(errors="replace"))
        own = [(file, int(line)) for file, line in frames if is_of_the_program(file)]
        if own:
            return own[0]
    return None

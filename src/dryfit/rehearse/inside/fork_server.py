"""A process that is started as the program, imports what the program will, and forks whenever a rehearsal is asked for.

It serves within `sitecustomize`: after Python has prepared itself, before it looks at the program. A fork
returns from there, so Python itself runs the script or module, as it does in a new process: `__main__`, `sys.path[0]`,
frames and all. The imports happen in a layer of their own (`sandbox.apart`); each fork is a keeper first, which begins
a sandbox of its own as a cold start does.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import io
import os
import select
import socket
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

from dryfit.errors import DryfitError
from dryfit.rehearse.inside import bootstrap
from dryfit.rehearse.inside.imported import changes
from dryfit.rehearse.sandbox import begin, keeper, kernel, messages
from dryfit.rehearse.sandbox.apart import VARIABLE
from dryfit.virtual_card import calls
from dryfit.virtual_card.settings import MAX_DEVICES

_LOOKS = "looks at the card when it is imported"


def serve() -> None:
    """Do what the other end of the channel asks for; returns in a fork that is to be the program, and nowhere else.

    A request is a list of `names` to import, or `variables` to be bound to, with the descriptor of a channel for the
    process that then is; or it is a fork, with the descriptors that `client.StartKeeper` has, and one to tell how the
    keeper ended.
    """
    try:
        become = _serve_at_first()
    except BaseException:
        os._exit(DryfitError.exit_code)  # going on would be running the program
    try:
        become()
    except BaseException:
        traceback.print_exc()
        os._exit(DryfitError.exit_code)


def _serve_at_first() -> Callable[[], None]:
    channel, as_before = map(int, os.environ.pop(VARIABLE).split(","))
    kept = frozenset(_open_descriptors() - {channel, as_before})
    messages.write(channel, {"serves": True})
    return _until_forked(socket.socket(fileno=channel), as_before, dict(os.environ), kept, is_bound=False)


def _until_forked(
    channel: socket.socket, as_before: int, environment: dict[str, str], kept: frozenset[int], *, is_bound: bool
) -> Callable[[], None]:
    """Serve one channel; `environment` is from before the imports, and `kept` are the descriptors that stay open."""
    watched = select.poll()
    watched.register(channel, select.POLLIN)
    children: dict[int, tuple[int, int]] = {}  # by descriptor: the process, and where to tell how it ended
    is_open = True
    while is_open or (is_bound and children):
        for ready, _ in watched.poll():
            if ready != channel.fileno():
                watched.unregister(ready)
                pid, tell = children.pop(ready)
                messages.write(tell, {"status": os.waitpid(pid, 0)[1]})
                os.close(tell)
                os.close(ready)
                continue
            data, handed, _, _ = socket.recv_fds(channel, 1, 6)
            if not data:
                watched.unregister(channel)
                is_open = False
                continue
            request = messages.read(channel.fileno())
            if "names" in request:
                before = _open_descriptors() - set(children)
                count, spoiled = _import(request["names"], len(children), is_bound=is_bound)
                sys.stdout.flush()  # or every fork would print it again
                ctypes.CDLL(None).fflush(None)
                kept |= _open_descriptors() - set(children) - before  # what the imports have opened is theirs
                changed = changes(environment, dict(os.environ))
                reply = {
                    "count": count,
                    "spoiled": spoiled,
                    "looks_at_card": spoiled.endswith(_LOOKS),
                    "environment": changed,
                }
                messages.write(channel.fileno(), reply)
                continue
            tell = handed[-1]
            pid = _fork(is_bound=is_bound)
            if pid == 0:
                imported = changes(environment, dict(os.environ))
                if "variables" in request:
                    channel.detach()
                    for descriptor in _open_descriptors() - kept - {as_before, *handed}:
                        os.close(descriptor)
                    os.close(tell)
                    _set_environment(request["variables"])
                    _change_environment(imported)
                    return _until_forked(
                        socket.socket(fileno=handed[0]), as_before, request["variables"], kept, is_bound=True
                    )
                variables = _keep(as_before, handed[:-1], tell)
                channel.detach()
                return functools.partial(_become, request, variables, imported, kept)
            for descriptor in handed[:-1]:
                os.close(descriptor)
            process = os.pidfd_open(pid)
            children[process] = (pid, tell)
            watched.register(process, select.POLLIN)
            messages.write(tell, {"pid": pid})
    os._exit(0)


def _fork(*, is_bound: bool) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the threads of linear algebra, which bear it
        calls.let_forks_go_on(is_bound)  # those of the keeper, too: the program is one
        pid = os.fork()
    if pid:
        calls.let_forks_go_on(False)
    return pid


def _import(names: list[str], children: int, *, is_bound: bool) -> tuple[int, str]:
    """Import modules; say how many were, and why no fork of this process can be a fresh start any more, or ""."""
    own = _names_beside_the_program()
    for number, name in enumerate(names):
        if name in sys.modules:
            continue
        if name.partition(".")[0] in own:
            return number, f"{name} is the name of a file of the program, too"
        try:
            importlib.import_module(name)
        except BaseException as error:
            return number, f"{name} cannot be imported before the program: {type(error).__name__}: {error}"
        if calls.looks_at_card():
            if not is_bound:
                return number, f"{name} {_LOOKS}"
            if any(map(calls.peak_used_bytes, range(MAX_DEVICES))):
                return number, f"{name} takes memory of the card when it is imported"
        if threading.active_count() > 1:
            return number, f"{name} starts a thread when it is imported"
        if len(_children()) > children:
            return number, f"{name} starts a process when it is imported"
        if shared := own & {known.partition(".")[0] for known in sys.modules} - {"sitecustomize", "usercustomize"}:
            return number, f"{min(shared)} is the name of a file of the program, too"
    return len(names), ""


def _names_beside_the_program() -> set[str]:
    """Names of modules that the program's own folder, which comes first on its path, has."""
    script = sys.argv[0]
    folder = Path.cwd() if script in ("", "-m") else Path(script).resolve()
    folder = folder.parent if folder.is_file() else folder
    try:
        return {entry.name.partition(".")[0] for entry in folder.iterdir() if entry.is_dir() or entry.suffix == ".py"}
    except OSError:
        return set()


def _children() -> list[str]:
    try:
        return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    except OSError:  # a kernel without CONFIG_PROC_CHILDREN
        return []


def _open_descriptors() -> set[int]:
    found = set()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with contextlib.suppress(OSError):  # the one that the listing itself was read from
            os.fstat(int(name))
            found.add(int(name))
    return found


def _keep(as_before: int, handed: list[int], tell: int) -> dict[str, str]:
    """Be a keeper, to its end; returns where the program has to run, with its environment."""
    try:
        os.close(tell)
        os.setsid()
        control, report, lock, stdout, stderr = handed
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        kernel.enter_namespace(as_before, kernel.NEW_MOUNTS)
        keeper.main(control, report, lock)
    except begin.TheProgram as program:
        return program.environment
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _become(
    request: messages.Message, variables: dict[str, str], imported: dict[str, str], kept: frozenset[int]
) -> None:
    """Have this process look as if it had been started just now, with the words and in the environment asked for.

    `imported` is what the imports have changed in the environment, as they do in a cold start.
    """
    calls.let_forks_go_on(False)
    for descriptor in _open_descriptors() - kept:
        os.close(descriptor)
    _set_environment(variables)
    sys.orig_argv[:] = request["command"]
    sys.argv[1:] = request["arguments"]
    stdout = sys.stdout
    if isinstance(stdout, io.TextIOWrapper):
        stdout.reconfigure(line_buffering=stdout.isatty() or stdout.write_through)
    if "tempfile" in sys.modules:
        sys.modules["tempfile"].__dict__["tempdir"] = None  # a module that was imported may have asked for it
    if "numpy.random" in sys.modules:  # Python's own generator sees to itself
        sys.modules["numpy.random"].seed()
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        torch.default_generator.seed()
        if torch.cuda.is_initialized():
            torch.cuda.seed_all()
    bootstrap.start_again(learns=request["learns"])
    _change_environment(imported)


def _set_environment(variables: dict[str, str]) -> None:
    for name in set(os.environ) - set(variables):
        del os.environ[name]
    os.environ.update(variables)


def _change_environment(changed: dict[str, str]) -> None:
    for name, value in changed.items():
        if value:
            os.environ[name] = value
        else:
            os.environ.pop(name, None)

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


def serve() -> None:
    """Do what the other end of the channel asks for; returns in a fork that is to be the program, and nowhere else.

    A request is a list of `names` to import, or a fork, with the descriptors that `client.StartKeeper` has, and one to
    tell how the keeper ended.
    """
    try:
        become = _until_forked()
    except BaseException:
        os._exit(DryfitError.exit_code)  # going on would be running the program
    try:
        become()
    except BaseException:
        traceback.print_exc()
        os._exit(DryfitError.exit_code)


def _until_forked() -> Callable[[], None]:
    channel_number, as_before = map(int, os.environ.pop(VARIABLE).split(","))
    channel = socket.socket(fileno=channel_number)
    environment = dict(os.environ)
    kept = _open_descriptors() - {channel_number, as_before}
    messages.write(channel_number, {"serves": True})
    watched = select.poll()
    watched.register(channel, select.POLLIN)
    keepers: dict[int, tuple[int, int]] = {}  # by descriptor: the process, and where to tell how it ended
    while True:
        for ready, _ in watched.poll():
            if ready != channel.fileno():
                watched.unregister(ready)
                pid, tell = keepers.pop(ready)
                messages.write(tell, {"status": os.waitpid(pid, 0)[1]})
                os.close(tell)
                os.close(ready)
                continue
            data, descriptors, _, _ = socket.recv_fds(channel, 1, 6)
            if not data:
                os._exit(0)
            request = messages.read(channel.fileno())
            if "names" in request:
                before = _open_descriptors() - set(keepers)
                count, spoiled = _import(request["names"], len(keepers))
                sys.stdout.flush()  # or every fork would print it again
                ctypes.CDLL(None).fflush(None)
                kept |= _open_descriptors() - set(keepers) - before  # what the imports have opened is theirs
                reply = {"count": count, "spoiled": spoiled, "environment": changes(environment, dict(os.environ))}
                messages.write(channel.fileno(), reply)
                continue
            *handed, tell = descriptors
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of the threads of linear algebra, which bear it
                pid = os.fork()
            if pid == 0:
                imported = changes(environment, dict(os.environ))
                variables = _keep(as_before, handed, tell)
                channel.detach()
                return functools.partial(_become, request, variables, imported, kept)
            for descriptor in handed:
                os.close(descriptor)
            process = os.pidfd_open(pid)
            keepers[process] = (pid, tell)
            watched.register(process, select.POLLIN)
            messages.write(tell, {"pid": pid})


def _import(names: list[str], keepers: int) -> tuple[int, str]:
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
        if _card_is_settled():
            return number, f"{name} looks at the card when it is imported"
        if threading.active_count() > 1:
            return number, f"{name} starts a thread when it is imported"
        if len(_children()) > keepers:
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


def _card_is_settled() -> bool:
    from dryfit.virtual_card import calls

    return calls.card_is_settled()


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


def _become(request: messages.Message, variables: dict[str, str], imported: dict[str, str], kept: set[int]) -> None:
    """Have this process look as if it had been started just now, with the words and in the environment asked for.

    `imported` is what the imports have changed in the environment, as they do in a cold start.
    """
    for descriptor in _open_descriptors() - kept:
        os.close(descriptor)
    for name in set(os.environ) - set(variables):
        del os.environ[name]
    os.environ.update(variables)
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
        sys.modules["torch"].default_generator.seed()
    bootstrap.start_again(learns=request["learns"])
    for name, value in imported.items():
        if value:
            os.environ[name] = value
        else:
            os.environ.pop(name, None)

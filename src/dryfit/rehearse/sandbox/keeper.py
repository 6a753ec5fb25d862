"""The keeper: a small process between dryfit and the program, run as `python -I -S keeper.py CONTROL REPORT LOCK`.

It starts the program where its writes and connections are kept away from everything real (`begin.py`), waits, and when
the program has ended, the control pipe is closed or dryfit is gone, kills every process below it,
reports and throws the layer away. It imports little: each module is a millisecond of every rehearsal.
"""

from __future__ import annotations

import os
import select
import sys

# Packages by name only: what their `__init__` imports for dryfit's own process a keeper need not wait for.
_folder = os.path.dirname(os.path.abspath(__file__))
for _name in ("dryfit.rehearse.sandbox", "dryfit.rehearse", "dryfit"):
    if _name not in sys.modules:
        _package = type(sys)(_name)
        _package.__path__ = [_folder]
        sys.modules[_name] = _package
    _folder = os.path.dirname(_folder)

from dryfit.rehearse.sandbox import begin, kernel, messages, processes, scratch  # noqa: E402
from dryfit.rehearse.sandbox.mounts import is_full  # noqa: E402


def main(control: int, report: int, lock: int) -> None:
    """Read what to run from `control`, run it, and write `started` and `ended` messages to `report`."""
    for descriptor in (control, report, lock):
        os.set_inheritable(descriptor, False)
    spec = messages.read(control)
    kernel.adopt_orphans()
    watched = select.poll()
    signals = kernel.signal_descriptor(kernel.SIGHUP, kernel.SIGINT, kernel.SIGTERM, kernel.SIGCHLD)
    watched.register(signals, select.POLLIN)
    watched.register(control, select.POLLIN)
    try:
        parent = os.pidfd_open(spec["parent"])
    except (AttributeError, OSError):  # before Linux 5.3: the closed control pipe alone says that dryfit is gone
        parent = control
    watched.register(parent, select.POLLIN)
    ended = _first_that_starts(spec, watched, signals, report)
    ended["peak_host_bytes"] = processes.end_descendants(ended["peak_host_bytes"])
    if not ended["full"] and is_full(spec["scratch"]):
        ended["full"] = "disk"
    messages.write(report, ended)
    scratch.remove_in_the_background(spec["scratch"])


def _first_that_starts(spec: messages.Message, watched: select.poll, signals: int, report: int) -> messages.Message:
    """Try the ways of keeping the program apart, strongest first, until one starts it, and return how that ended."""
    failures: list[str] = []
    without: set[str] = set()
    ended: messages.Message = {}
    for way, own_user in begin.ways(spec):
        while True:
            ended = _run(spec, (way, own_user, frozenset(without)), failures, watched, signals, report)
            if ended["refused"] not in ("network", "processes") or ended["refused"] in without:
                break
            without.add(ended["refused"])
        if not ended["refused"]:
            return ended
    ended["status"] = None
    ended["problem"] = " ".join(["The program could not be started in any sandbox.", *failures])
    return ended


def _run(
    spec: messages.Message, way: begin.Way, failures: list[str], watched: select.poll, signals: int, report: int
) -> messages.Message:
    inner, inner_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(inner)
        begin.begin(spec, way, inner_end)
    os.close(inner_end)
    os.set_blocking(inner, False)
    watched.register(inner, select.POLLIN)
    ended: messages.Message = {"kind": "ended", "status": None, "refused": "", "problem": "", "peak_host_bytes": 0}
    ended |= {"stopped": False, "cpu_seconds": 0.0, "full": ""}
    alive, started = True, False
    while alive and not ended["stopped"]:
        ready = dict(watched.poll())
        if signals in ready:
            numbers = kernel.signals_that_came(signals)
            ended["stopped"] = any(number != kernel.SIGCHLD for number in numbers)
        if ready.keys() - {signals, inner}:
            ended["stopped"] = True
        while alive and (waited := os.wait4(-1, os.WNOHANG))[0]:
            pid, status, usage = waited
            ended["peak_host_bytes"] = max(ended["peak_host_bytes"], usage.ru_maxrss * 1024)
            ended["cpu_seconds"] += usage.ru_utime + usage.ru_stime
            if pid == child:
                alive = False
                if ended["status"] is None:  # the first process of a process namespace has told the program's already
                    ended["status"] = status
        if inner in ready or not alive:
            for message in messages.read_available(inner):
                if message["kind"] == "refused":
                    failures += [words for words in message["failures"] if words not in failures]
                    ended["refused"] = message["stage"]
                elif message["kind"] == "started":
                    started = True
                    message["failures"] = failures + message["failures"]
                    messages.write(report, message)
                else:
                    ended |= message
            if ready.get(inner, 0) & select.POLLHUP:
                watched.unregister(inner)
    os.close(inner)
    if ended["stopped"]:
        ended["status"] = None
    elif not (started or ended["refused"] or ended["problem"]):  # as a seccomp filter does that kills
        ended["refused"] = "fault"
        words = f"{way[0]} could not be set up: the process that did it ended by {_how(ended['status'])}."
        failures += [words] if words not in failures else []
    return ended


def _how(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}"
    return f"exit status {os.WEXITSTATUS(status)}"


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))

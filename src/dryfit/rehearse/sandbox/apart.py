"""Executes a command in a layer of its own, from which its forks can leave: `python -I -S apart.py CHANNEL`.

For a process that forks programs into sandboxes of their own (`inside.fork_server`). What it writes itself is thrown
away, whatever it runs; a fork may go back to `as_before` because it has kept the right to, and gives it up in its own
sandbox. The channel's first message is a specification as `begin` has it; the answer says whether the kernel refused.
"""

from __future__ import annotations

import os
import sys

_folder = os.path.dirname(os.path.abspath(__file__))
for _name in ("dryfit.rehearse.sandbox", "dryfit.rehearse", "dryfit"):  # as in keeper.py
    if _name not in sys.modules:
        _package = type(sys)(_name)
        _package.__path__ = [_folder]
        sys.modules[_name] = _package
    _folder = os.path.dirname(_folder)

from dryfit.rehearse.sandbox import begin, kernel, messages, mounts  # noqa: E402

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

VARIABLE = "DRYFIT_FORK_SERVER"
"""Tells the command the descriptors of the channel and of the mount namespace in which all is as it was before."""


def main(channel: int) -> NoReturn:
    """Read the specification, go apart, say so, and execute."""
    spec = messages.read(channel)
    try:
        as_before = _apart(spec)
    except begin.Refused as refused:
        messages.write(channel, {"refused": str(refused)})
        os._exit(0)
    for descriptor in (channel, as_before):
        os.set_inheritable(descriptor, True)
    messages.write(channel, {"refused": ""})
    os.chdir(spec["cwd"])
    kernel.default_signals()
    os.execve(spec["argv"][0], spec["argv"], {**spec["env"], VARIABLE: f"{channel},{as_before}"})


def _apart(spec: messages.Message) -> int:
    own_user = os.geteuid() != 0
    started: messages.Message = {"read_only": [], "failures": []}
    addresses, _ = begin.this_machine(spec)
    if own_user:
        begin.enter_own_user()
    if begin.enter_own_network(spec, frozenset(), addresses, started["failures"]) == begin.AUDIT_HOOK:
        raise begin.Refused("network", started["failures"][0])
    try:
        kernel.unshare(kernel.NEW_MOUNTS)
        kernel.mount("", "/", flags=kernel.RECURSIVE | kernel.PRIVATE)
        as_before = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        kernel.unshare(kernel.NEW_MOUNTS)
        begin.throw_away(spec, begin.LAYERS, own_user, own_processes=False, started=started)
        mounts.enter()
        if own_user:
            kernel.keep_capabilities()
    except OSError as error:
        raise begin.Refused("mounts", f"No layers could be mounted ({error}).") from error
    return as_before


if __name__ == "__main__":
    main(int(sys.argv[1]))

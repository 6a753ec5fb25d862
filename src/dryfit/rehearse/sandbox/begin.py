"""Between the keeper's fork and the program's exec: namespaces, the new root, the network; and words if refused."""

from __future__ import annotations

import os

from dryfit.rehearse.sandbox import kernel, landlock, messages, mounts, network

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn, TypeAlias

    Way: TypeAlias = tuple[str, bool, frozenset[str]]
    """What keeps writes away; whether in a user namespace; which of "network" and "processes" get none of their own."""

LAYERS, MEMORY_LAYERS, READ_ONLY = "layers", "memory-layers", "read-only"
LANDLOCK, AUDIT_HOOK = "landlock", "audit-hook"
ALLOWED, BARE = "allowed", "bare"
WITH_MOUNTS = (LAYERS, MEMORY_LAYERS, READ_ONLY, ALLOWED)
STRENGTHS = (LAYERS, MEMORY_LAYERS, READ_ONLY, LANDLOCK, AUDIT_HOOK)


class Refused(Exception):
    """The kernel refused the step that `stage` names; the sentence says which and what allows it."""

    def __init__(self, stage: str, sentence: str) -> None:
        super().__init__(sentence)
        self.stage = stage


class TheProgram(BaseException):
    """Raised in a process that is where the program has to run, and is a fork that needs no exec to be it."""

    def __init__(self, environment: dict[str, str]) -> None:
        super().__init__()
        self.environment = environment


def ways(spec: messages.Message) -> list[tuple[str, bool]]:
    """How to try, in this order: what keeps the program's writes away, and whether in a user namespace."""
    root = os.geteuid() == 0
    names: tuple[str, ...]
    if spec["allow_writes"]:
        names = (ALLOWED, BARE)
    elif spec["strongest"] == LAYERS:
        names = (LAYERS, READ_ONLY, LANDLOCK, AUDIT_HOOK)  # layers are in memory by themselves where the disk has none
    else:
        names = STRENGTHS[STRENGTHS.index(spec["strongest"]) :]
    found = []
    for name in names:
        if root:
            found += [(name, False), (name, True)]
        else:
            found += [(name, True)] if name in WITH_MOUNTS else [(name, True), (name, False)]
    return found


def begin(spec: messages.Message, way: Way, inner: int) -> NoReturn:
    """Become the program, or what waits for it in its own process namespace; tell `inner` how it went."""
    keeper = os.getppid()
    try:
        kernel.die_with_parent()
        if os.getppid() == keeper:
            _begin(spec, way, inner)
    except TheProgram:
        raise
    except Refused as refused:
        messages.write(inner, {"kind": "refused", "stage": refused.stage, "failures": [str(refused)]})
    except BaseException as error:  # a fault of ours: nothing but this process may see it, so it is reported as such
        sentence = f"{way[0]} could not be set up: {type(error).__name__}: {error}."
        messages.write(inner, {"kind": "refused", "stage": "fault", "failures": [sentence]})
    os._exit(0)


def _begin(spec: messages.Message, way: Way, inner: int) -> None:
    name, own_user, without = way
    started: messages.Message = {"kind": "started", "writes": ALLOWED if name == BARE else name}
    started |= {"read_only": [], "failures": []}
    addresses, hosts = this_machine(spec)
    if own_user:
        enter_own_user()
        kernel.die_with_parent()  # new credentials may have cleared it
    started["network"] = enter_own_network(spec, without, addresses, started["failures"])
    own_processes = name in WITH_MOUNTS and "processes" not in without
    started["processes"] = "namespace" if own_processes else "reaper"
    if name in WITH_MOUNTS:
        _own_mounts(spec, name, own_user, own_processes, hosts, started)
    _hooks(spec, name, started)
    if own_processes:
        _in_own_processes(spec, name, inner, started)
    else:
        if name in WITH_MOUNTS and name != ALLOWED:
            mounts.enter()
        _execute(spec, name, inner, started)


def enter_own_user() -> None:
    """Give this process a user namespace in which its user is the only one."""
    user, group = os.geteuid(), os.getegid()
    try:
        kernel.unshare(kernel.NEW_USER)
        for path, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{path}", "w", encoding="ascii") as file:
                file.write(text)
    except OSError as error:
        raise Refused(
            "user",
            f"No user namespace could be made ({error.strerror}); of the sysctls user.max_user_namespaces, "
            "kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns one may forbid it, "
            "and so may a container's seccomp profile.",
        ) from error


def this_machine(spec: messages.Message) -> tuple[list[bytes], str]:
    """The addresses that `lo` has to answer at, and a file to show as /etc/hosts, or none."""
    if spec["allow_network"]:
        return [], ""
    try:
        with open("/etc/hosts", encoding="utf-8", errors="surrogateescape") as file:
            text = file.read()
        named, wanted = network.host_name_in(text)
        addresses = network.own_addresses() + named
        if wanted == text:
            return addresses, ""
        path = spec["scratch"] + "/hosts"
        with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(wanted)
        os.chmod(path, 0o644)
        return addresses, path
    except OSError:
        return [], ""


def enter_own_network(
    spec: messages.Message, without: frozenset[str], addresses: list[bytes], failures: list[str]
) -> str:
    """Give this process a network of its own where it can have one; say which of `Protection.network` that comes to."""
    if spec["allow_network"]:
        return ALLOWED
    if "network" in without:
        return AUDIT_HOOK
    try:
        kernel.unshare(kernel.NEW_NET)
    except OSError as error:
        failures.append(
            f"No network namespace could be made ({error.strerror}); connections are refused in Python only."
        )
        return AUDIT_HOOK
    try:
        network.bring_up_loopback(addresses)
    except OSError as error:
        raise Refused(
            "network", f"Loopback could not be switched on in a network of its own ({error.strerror})."
        ) from error
    return "loopback"


def _own_mounts(
    spec: messages.Message, name: str, own_user: bool, own_processes: bool, hosts: str, started: messages.Message
) -> None:
    try:
        kernel.unshare(kernel.NEW_MOUNTS)
        kernel.mount("", "/", flags=kernel.RECURSIVE | kernel.PRIVATE)
    except OSError as error:
        raise Refused(
            "mounts",
            f"No mount namespace could be made ({error.strerror}); a container needs the capability SYS_ADMIN, "
            "or user namespaces and a seccomp and AppArmor profile that let it mount.",
        ) from error
    hosts_target = os.path.realpath("/etc/hosts")
    if name == ALLOWED:
        old = new = ""
    else:
        old, new = mounts.OLD, mounts.NEW
        try:
            throw_away(spec, name, own_user, own_processes, started)
        except OSError as error:
            raise Refused("mounts", f"The {name} could not be mounted ({error}).") from error
    if hosts and os.path.exists(new + hosts_target):
        try:
            kernel.mount(old + hosts, new + hosts_target, flags=kernel.BIND)
        except OSError as error:
            started["failures"].append(f"This machine's name could not be led to 127.0.0.1 ({error.strerror}).")
    if own_processes:
        try:
            kernel.unshare(kernel.NEW_PIDS)
        except OSError as error:
            raise Refused("processes", f"No process namespace could be made ({error.strerror}).") from error


def throw_away(
    spec: messages.Message, name: str, own_user: bool, own_processes: bool, started: messages.Message
) -> None:
    """Put together, in a mount namespace of this process, the root that `mounts.enter` enters."""
    scratch = spec["scratch"]
    seen = mounts.visible_mounts()
    steps = mounts.plan(seen, spec["temporary"], spec["protected"], spec["writable"], scratch)
    places = {mounts.IN_MEMORY: "/layers"}
    if name == LAYERS:
        places[mounts.ON_DISK] = f"{mounts.OLD}{scratch}/layers"
    layers = None if name == READ_ONLY else mounts.Layers(places, own_user, spec["protected"] + spec["expected"])
    mounts.build(scratch + "/root", steps, seen, layers, spec["memory_bytes"], fresh_proc=own_processes)
    if layers is not None:
        started["failures"] += layers.refusals
        started["read_only"] = layers.read_only
        if own_user and os.path.isdir(mounts.OLD + spec["project"]):
            found = os.stat(mounts.OLD + spec["project"])
            if (found.st_uid, found.st_gid) != (os.geteuid(), os.getegid()):
                started["failures"].append(
                    f"{spec['project']} belongs to another user or group: files in it that do, too, cannot be changed "
                    "in a user namespace, and a program that tries gets «Value too large for defined data type»."
                )
        names = {mounts.ON_DISK: LAYERS, mounts.IN_MEMORY: MEMORY_LAYERS, "": READ_ONLY}
        started["writes"] = names[layers.around(spec["project"])]
    shown = mounts.NEW + scratch + "/layers"
    if os.path.isdir(shown):
        kernel.mount("dryfit", shown, "tmpfs", kernel.READ_ONLY, "size=4k,mode=0")


def _hooks(spec: messages.Message, name: str, started: messages.Message) -> None:
    """Tell the program's Python, through its environment, what `refuse.install_as_told` has to do there."""
    told = []
    if started["writes"] in (READ_ONLY, LANDLOCK, AUDIT_HOOK):
        told.append("writes")
    elif started["writes"] != ALLOWED:
        told.append("renames")
    if started["network"] == AUDIT_HOOK:
        told.append("network")
    spec["env"]["DRYFIT_SANDBOX"] = ",".join(told)
    spec["env"]["DRYFIT_WRITABLE"] = "\n".join(_writable(spec))
    spec["env"]["DRYFIT_PROTECTED"] = "\n".join(spec["protected"])


def _writable(spec: messages.Message) -> list[str]:
    return [*spec["temporary"], *spec["writable"], "/dev", "/proc"]


def _in_own_processes(spec: messages.Message, name: str, inner: int, started: messages.Message) -> None:
    first = os.fork()
    if first:
        _, status = os.waitpid(first, 0)
        if os.WIFSIGNALED(status):  # it could not tell how the program ended, which ended with it
            os.kill(os.getpid(), os.WTERMSIG(status))
        return
    # Process 1 of the namespace: when it ends, the kernel ends all others.
    try:
        kernel.die_with_parent()
        try:
            kernel.mount("proc", "/proc" if name == ALLOWED else mounts.NEW + "/proc", "proc",
                         kernel.NO_SUID | kernel.NO_DEV | kernel.NO_EXEC)  # fmt: skip
        except OSError as error:
            raise Refused("processes", f"No /proc of its own could be mounted ({error.strerror}).") from error
        if name != ALLOWED:
            mounts.enter()
        program = os.fork()
        if program == 0:
            _execute(spec, name, inner, started)
        while True:
            pid, status = os.waitpid(-1, 0)
            if pid == program:
                full = "memory" if started["writes"] == MEMORY_LAYERS and mounts.is_full("/") else ""
                messages.write(inner, {"kind": "ended", "status": status, "full": full})
                break
    except TheProgram:
        raise
    except Refused as refused:
        messages.write(inner, {"kind": "refused", "stage": refused.stage, "failures": [str(refused)]})
    except BaseException as error:
        messages.write(
            inner, {"kind": "refused", "stage": "fault", "failures": [f"{name} could not be set up: {error!r}."]}
        )
    os._exit(0)


def _execute(spec: messages.Message, name: str, inner: int, started: messages.Message) -> NoReturn:
    os.setsid()
    if name == LANDLOCK:
        outside = spec["writable"] + [
            folder
            for folder in _writable(spec)
            if not any(mounts.is_within(protected, folder) for protected in spec["protected"])
        ]
        try:
            landlock.refuse_writes_outside(outside)
        except OSError as error:
            raise Refused(
                "landlock", f"This kernel has no Landlock to refuse writes with ({error.strerror})."
            ) from error
    messages.write(inner, started)
    argv = spec["argv"]
    try:
        os.chdir(spec["cwd"])
        if not argv:
            kernel.unblock_signals()
            raise TheProgram(spec["env"])
        kernel.default_signals()
        os.execvpe(argv[0], argv, spec["env"])
    except (OSError, ValueError, TypeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        messages.write(
            inner, {"kind": "ended", "problem": f"{spec['name']} could not be started in {spec['cwd']}: {reason}."}
        )
    os._exit(127)

"""The Linux calls that a sandbox is made of and Python's standard library lacks; each raises its errno as `OSError`.

Numbers are those of the kernel's uapi headers: linux/sched.h, linux/mount.h, linux/prctl.h, asm-generic/unistd.h.
"""

from __future__ import annotations

import ctypes
import os

NEW_MOUNTS, NEW_USER, NEW_PIDS, NEW_NET = 0x0002_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000

READ_ONLY, NO_SUID, NO_DEV, NO_EXEC, REMOUNT = 0x1, 0x2, 0x4, 0x8, 0x20
BIND, RECURSIVE, PRIVATE = 0x1000, 0x4000, 0x4_0000
_DETACH = 2

_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_SYS_MOUNT_SETATTR = 442
_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 47, 2
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38
_SIG_SETMASK = 2
SIGHUP, SIGINT, SIGKILL, SIGPIPE, SIGTERM, SIGCHLD, SIGXFSZ = 1, 2, 9, 13, 15, 17, 25

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)
_libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
_libc.signal.restype = ctypes.c_void_p
_libc.syscall.restype = ctypes.c_long


def _checked(result: int, where: str | None = None) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), where)
    return result


def syscall(number: int, *arguments: object) -> int:
    """Make a system call that the C library has no function for."""
    # Whole registers: ctypes would pass an int as 32 bits and leave the other half to chance.
    registers = (ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments)
    return _checked(int(_libc.syscall(ctypes.c_long(number), *registers)))


def unshare(flags: int) -> None:
    """Give this process namespaces of its own: any of `NEW_MOUNTS | NEW_USER | NEW_PIDS | NEW_NET`."""
    _checked(_libc.unshare(flags))


def enter_namespace(descriptor: int, kind: int) -> None:
    """Join the namespace that a file of /proc/PID/ns stands for; `kind` is its flag, such as `NEW_MOUNTS`."""
    _checked(_libc.setns(descriptor, kind))


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """mount(2); an empty text stands for a null pointer."""
    _checked(
        _libc.mount(
            os.fsencode(source) or None,
            os.fsencode(target),
            os.fsencode(kind) or None,
            flags,
            os.fsencode(options) or None,
        ),
        target,
    )


def detach(target: str) -> None:
    """Take the mount at `target` and those on it out of the tree; it lives on for whoever has it open."""
    _checked(_libc.umount2(os.fsencode(target), _DETACH), target)


def pivot_root(new: str, old: str) -> None:
    """Make the mount at `new` the root of this mount namespace and hang the former root at `old`."""
    number = _SYS_PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise OSError(38, f"pivot_root on {os.uname().machine} is not known here")
    syscall(number, os.fsencode(new), os.fsencode(old))


def make_read_only(target: str) -> None:
    """Refuse writes through the mount at `target` and every mount on it, whatever other flags they have."""
    attributes = (ctypes.c_uint64 * 4)(READ_ONLY, 0, 0, 0)  # struct mount_attr: set, clear, propagation, user namespace
    try:
        syscall(_SYS_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(target), _AT_RECURSIVE, attributes, 32)
    except OSError:
        # Before Linux 5.12 one mount at a time, and the flags that are on must be named again or the kernel says EPERM.
        with open("/old/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            places = [line.split(" ", 5)[4] for line in file]
        for place in places:
            if place == target or place.startswith(target + "/"):
                kept = os.statvfs(place).f_flag & (NO_SUID | NO_DEV | NO_EXEC)
                mount("", place, flags=BIND | REMOUNT | READ_ONLY | kept)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    _checked(_libc.prctl(_PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0))


def adopt_orphans() -> None:
    """Make this process the parent of any descendant whose own parent ends."""
    _checked(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


def give_up_new_privileges() -> None:
    """Let no later exec gain privileges (setuid programs); the kernel asks for it before Landlock."""
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def keep_capabilities() -> None:
    """Let what this process executes next have its capabilities too; in a user namespace they would be lost."""
    header = (ctypes.c_uint32 * 2)(0x2008_0522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    data = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable of 32 capabilities, and of the next 32
    _checked(_libc.capget(header, data))
    data[2], data[5] = data[1], data[4]
    _checked(_libc.capset(header, data))
    for number in range(64):
        if data[1 + 3 * (number // 32)] >> number % 32 & 1:
            _checked(_libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, number, 0, 0))


def signal_descriptor(*signals: int) -> int:
    """Block the signals and give a file descriptor that is readable when one has come."""
    mask = (ctypes.c_uint64 * 16)(sum(1 << (number - 1) for number in signals))
    _checked(_libc.sigprocmask(_SIG_SETMASK, mask, None))
    return _checked(_libc.signalfd(-1, mask, os.O_CLOEXEC | os.O_NONBLOCK))


def default_signals() -> None:
    """Undo what Python and `signal_descriptor` did to signals, as a program that is about to be started expects."""
    for number in (SIGPIPE, SIGXFSZ):
        _libc.signal(number, None)
    unblock_signals()


def unblock_signals() -> None:
    """Let every signal through again."""
    _checked(_libc.sigprocmask(_SIG_SETMASK, (ctypes.c_uint64 * 16)(0), None))


def internet_socket() -> int:
    """A file descriptor to ask about and to change network interfaces with."""
    return _checked(_libc.socket(2, 2 | os.O_CLOEXEC, 0))  # AF_INET, SOCK_DGRAM


def interface_requests(request: int, buffer: bytearray) -> int:
    """Fill the buffer with a `struct ifreq` for each network interface and return how many bytes of it were used."""
    storage = (ctypes.c_char * len(buffer)).from_buffer(buffer)
    asked = (ctypes.c_long * 2)(len(buffer), ctypes.addressof(storage))  # struct ifconf
    control = internet_socket()
    try:
        _checked(_libc.ioctl(control, ctypes.c_ulong(request), asked))
    finally:
        os.close(control)
    return asked[0] & 0xFFFF_FFFF


def signals_that_came(descriptor: int) -> list[int]:
    """The numbers of the signals that a descriptor of `signal_descriptor` has to tell."""
    information_bytes = 128  # struct signalfd_siginfo, its number first
    try:
        data = os.read(descriptor, 16 * information_bytes)
    except BlockingIOError:
        return []
    return [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), information_bytes)]

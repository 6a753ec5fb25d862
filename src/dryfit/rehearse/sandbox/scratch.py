"""The folder in which one rehearsal's throw-away layer and temporary files lie, and how none is left behind."""

from __future__ import annotations

import fcntl
import os
import re

_PREFIX = "dryfit-"
_NAME = re.compile(_PREFIX + "[0-9a-f]{12}")
_LOCK = "lock"


def make(base: str) -> tuple[str, int]:
    """Make a scratch folder in `base` and return it with an open lock: while anyone holds that open, it is in use.

    Raises:
        OSError: the folder cannot be made there; nothing of it is left.
    """
    while True:
        folder = os.path.join(base, _PREFIX + os.urandom(6).hex())
        os.mkdir(folder, 0o700)
        lock = -1
        try:
            lock = os.open(os.path.join(folder, _LOCK), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_still_there(folder, lock):  # another rehearsal swept it in the moment before it was locked
                os.close(lock)
                continue
            for name in ("layers", "root", "temporary"):
                os.mkdir(os.path.join(folder, name))
        except OSError:
            remove(folder)
            if lock >= 0:
                os.close(lock)
            raise
        return folder, lock


def _is_still_there(folder: str, lock: int) -> bool:
    try:
        return os.path.samestat(os.stat(os.path.join(folder, _LOCK)), os.fstat(lock))
    except FileNotFoundError:
        return False


def sweep(base: str) -> None:
    """Remove scratch folders of this user in `base` that nobody holds: their keeper was killed and so could not."""
    for name in os.listdir(base):
        folder = os.path.join(base, name)
        if not _NAME.fullmatch(name) or os.path.islink(folder):
            continue
        try:
            lock = os.open(os.path.join(folder, _LOCK), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock).st_uid == os.geteuid():
                remove(folder)
        except BlockingIOError:
            continue
        finally:
            os.close(lock)


def remove_in_the_background(folder: str) -> None:
    """Remove a folder in a process of its own, so that nobody waits for the disk; it holds the lock until done."""
    if os.fork():
        return
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):  # someone may wait for the end of the program's output
        os.dup2(nothing, stream)
    remove(folder)
    os._exit(0)


def remove(folder: str) -> None:
    """Remove a folder and what is in it, even what overlayfs or the program left without permission to enter."""
    for _ in range(2):
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        remove(entry.path)
                    else:
                        os.unlink(entry.path)
            os.rmdir(folder)
            return
        except FileNotFoundError:
            return
        except OSError:
            try:
                os.chmod(folder, 0o700)
            except OSError:
                return

"""In the program's own Python: refuse in words what namespaces could not keep away, and rename across layers.

The last line of defence: it sees what goes through Python (`open`, `os`, `shutil`, `pathlib`, `socket`, `sqlite3`), not
what an extension's own C code does. Installed as early as possible in every Python process of the program.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any

_LIFTED = "this is a rehearsal, in which all weights are garbage"

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

# Audit events (docs.python.org/3/library/audit_events.html) -> a verb, and where paths and folder descriptors stand.
_PATHS: dict[str, tuple[str, tuple[tuple[int, int | None], ...]]] = {
    "os.remove": ("delete", ((0, 1),)),
    "os.rmdir": ("delete", ((0, 1),)),
    "os.mkdir": ("make the folder", ((0, 2),)),
    "os.rename": ("rename", ((0, 2), (1, 3))),
    "os.truncate": ("truncate", ((0, None),)),
    "os.link": ("link to", ((1, 3),)),
    "os.symlink": ("make the link", ((1, 2),)),
    "os.chmod": ("change the mode of", ((0, 2),)),
    "os.chown": ("change the owner of", ((0, 3),)),
    "os.utime": ("change the times of", ((0, 3),)),
    "os.setxattr": ("change the attributes of", ((0, None),)),
    "os.removexattr": ("change the attributes of", ((0, None),)),
}


def install_as_told(environ: Mapping[str, str] = os.environ) -> None:
    """Do in this process what the keeper asked for in DRYFIT_SANDBOX; nothing where it asked for nothing."""
    told = environ.get("DRYFIT_SANDBOX", "").split(",")
    if "writes" in told:
        refuse_writes(environ.get("DRYFIT_WRITABLE", "").split("\n"), environ.get("DRYFIT_PROTECTED", "").split("\n"))
    if "network" in told:
        refuse_connections()
    if "renames" in told:
        rename_across_layers()


def refuse_writes(writable: Sequence[str], protected: Sequence[str] = ()) -> None:
    """Refuse, until this process ends, every change to files outside the `writable` folders.

    >>> refuse_writes(["/tmp"], protected=["/tmp/project"])                                      # doctest: +SKIP

    Of a writable and a protected folder around a path the inner one decides. What is refused raises `PermissionError`.
    """
    decides = {os.path.realpath(path): True for path in writable if path}
    decides |= {os.path.realpath(path): False for path in protected if path}
    sys.dont_write_bytecode = True

    def may_change(path: str) -> bool:
        folder = path
        while folder not in decides and folder != "/":
            folder = os.path.dirname(folder)
        return decides.get(folder, False)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        for verb, path in _changes(event, arguments):
            if not may_change(path):
                raise PermissionError(
                    errno.EACCES,
                    f"dryfit refused to {verb} a file outside temporary folders, for {_LIFTED}; "
                    "`dryfit run --allow-writes` lets the program do it",
                    path,
                )

    sys.addaudithook(hook)


def refuse_connections() -> None:
    """Refuse, until this process ends, connections and datagrams to anything but this machine."""
    own_name = socket.gethostname()

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in ("socket.connect", "socket.sendto", "socket.sendmsg"):
            return
        address = arguments[1]
        if not isinstance(address, tuple) or not address or not isinstance(address[0], str):
            return  # a socket in the file system, or the peer of one already connected
        host = address[0]
        if host in ("", "localhost", "::1", own_name, "0.0.0.0") or host.startswith(("127.", "::ffff:127.")):
            return
        raise PermissionError(
            errno.EACCES,
            f"dryfit refused a connection to {host}, for {_LIFTED} and no network but this machine's own; "
            "`dryfit run --allow-network` lets the program connect",
        )

    sys.addaudithook(hook)


def rename_across_layers() -> None:
    """Let `os.rename` and `os.replace` move what the kernel will not: a real folder within its layer, as EXDEV says.

    An overlay that an ordinary user mounted cannot rename a folder that lies below it, though the real disk can.
    """
    for name in ("rename", "replace"):
        setattr(os, name, _moving(getattr(os, name)))


def _moving(rename: Any) -> Any:
    def moving(src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        try:
            rename(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
            return
        except OSError as error:
            if error.errno != errno.EXDEV or src_dir_fd is not None or dst_dir_fd is not None:
                raise
        import shutil

        source, target = os.fsdecode(src).rstrip("/"), os.fsdecode(dst).rstrip("/")
        staged = f"{target}.{os.urandom(6).hex()}"
        try:
            if os.path.isdir(source) and not os.path.islink(source):
                shutil.copytree(source, staged, symlinks=True)
                rename(staged, target)
                shutil.rmtree(source)
            else:
                shutil.copy2(source, staged, follow_symlinks=False)
                rename(staged, target)
                os.unlink(source)
        finally:
            shutil.rmtree(staged, ignore_errors=True)

    moving.__name__ = rename.__name__
    moving.__doc__ = rename.__doc__
    return moving


def _changes(event: str, arguments: tuple[Any, ...]) -> list[tuple[str, str]]:
    """What an audit event is about to change: a verb and an absolute path for each file."""
    if event == "open":
        path, _, flags = arguments
        if isinstance(path, int) or path is None or not flags & _WRITING:
            return []
        return [("write", _resolved(path, None))]
    if event == "sqlite3.connect":
        name = os.fsdecode(arguments[0])
        if name in ("", ":memory:") or name.startswith("file:"):
            return []
        return [("write", _resolved(name, None))]
    if event not in _PATHS:
        return []
    verb, places = _PATHS[event]
    found = []
    for at, folder_at in places:
        path = arguments[at]
        folder = arguments[folder_at] if folder_at is not None else None
        if isinstance(path, int):
            path = f"/proc/self/fd/{path}"
        found.append((verb, _resolved(path, folder)))
    return found


def _resolved(path: Any, folder: int | None) -> str:
    """The absolute path with the links of the folders before the name followed; those of the name itself are not."""
    text = os.fsdecode(path)
    if folder is not None and folder >= 0 and not os.path.isabs(text):
        text = f"/proc/self/fd/{folder}/{text}"
    head, name = os.path.split(text.rstrip("/") or "/")
    return os.path.join(os.path.realpath(head or "."), name) if name not in ("", ".", "..") else os.path.realpath(text)

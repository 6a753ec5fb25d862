"""Paths that environment variables can hold, and the folder of what is kept from one run to the next."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
from pathlib import Path

from dryfit.errors import UsageError

_SEPARATORS = re.compile(r"[\s:;]")


def listable(folder: Path) -> Path:
    """The folder by a path that LD_PRELOAD and PYTHONPATH can list: blanks and colons separate there, without escape.

    >>> listable(Path("/usr/lib"))
    PosixPath('/usr/lib')

    A path that has them is reached through a link in the temporary folder, which is kept.

    Raises:
        UsageError: the temporary folder's path has them too, or somebody else's link is in the way.
    """
    if not _SEPARATORS.search(str(folder)):
        return folder
    name = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    link = Path(tempfile.gettempdir()) / f"dryfit-link-{os.getuid()}-{name}"
    with contextlib.suppress(FileExistsError):
        link.symlink_to(folder)
    if link.lstat().st_uid != os.getuid() or link.readlink() != folder or _SEPARATORS.search(str(link)):
        raise UsageError(
            f"A part of dryfit lies in {folder}, and environment variables cannot list a path with blanks or colons. "
            f"A link to it as {link} is no help either; install dryfit in a folder without them."
        )
    return link


def cache_folder() -> Path:
    """Where dryfit keeps what it can find again: below XDG_CACHE_HOME, or ~/.cache. Any file in it can be removed.

    >>> cache_folder().name
    'dryfit'
    """
    asked = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (asked if asked.is_absolute() else Path.home() / ".cache") / "dryfit"

"""Files that are written whole, or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from dryfit.errors import UsageError


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str], what: str) -> Iterator[IO[bytes]]:
    """Open a file that takes its place once it is whole; until then, and if it fails, what stood there stays.

        with whole_file("run.json", "result") as file:
            file.write(b"{}")

    `what` is the word for it in the sentence of an error. The target of a link is replaced, not the link. A device or a
    pipe, such as /dev/stdout, is written to as it comes.

    Raises:
        UsageError: the file cannot be written.
        BrokenPipeError: it is a pipe, and its reader has closed it.
    """
    place = Path(path)
    try:
        is_stream = place.exists() and not place.is_file()
        target = place if is_stream else place.resolve()
        # A name may have 255 bytes.
        part = target if is_stream else target.with_name(f".{target.name[:32]}.{os.getpid()}.part")
        try:
            with part.open("wb") as file:
                yield file
            if not is_stream:
                with contextlib.suppress(OSError):
                    shutil.copymode(target, part)
                part.replace(target)
        finally:
            if not is_stream:
                part.unlink(missing_ok=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"The {what} could not be saved as {place}: {reason}; choose another path.") from error

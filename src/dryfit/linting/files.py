"""Which files are looked at, and their text, or the sentence that says why not."""

from __future__ import annotations

import io
import os
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

SUFFIXES = (".py", ".ipynb")
# Not the user's own code, or not source.
SKIPPED_DIRECTORIES = frozenset(
    {"venv", "env", "site-packages", "node_modules", "build", "dist", "__pycache__", "__pypackages__", "wandb"}
)
# Beyond that a file is data, or made by a program.
LARGEST_BYTES = 2 * 1024 * 1024
LARGEST_NOTEBOOK_BYTES = 64 * 1024 * 1024


def find_files(paths: Sequence[str | Path]) -> Iterator[tuple[Path, str]]:
    """The files of the paths, each with a problem ("" if there is none); directories are walked in sorted order.

    A file that is named is taken whatever its name; in a directory, `*.py` and `*.ipynb` are, except in hidden
    directories and those of `SKIPPED_DIRECTORIES`.
    """
    seen: set[Path] = set()
    for path in map(Path, paths):
        found: Iterable[tuple[Path, str]]
        if path.is_dir():
            found = ((each, "") for each in _walk(path))
        elif path.is_file():
            found = [(path, "")]
        elif path.is_symlink():
            found = [(path, f"{path}: this link leads nowhere.")]
        elif path.exists():
            found = [(path, f"{path} is no file and no directory, and was left out.")]
        else:
            found = [(path, f"{path}: there is no such file or directory.")]
        for each, problem in found:
            if each not in seen:
                seen.add(each)
                yield each, problem


def _walk(directory: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(directory):
        folders[:] = sorted(each for each in folders if not _skipped(Path(folder, each)))
        for name in sorted(names):
            path = Path(folder, name)
            if name.endswith(SUFFIXES) and not name.startswith(".") and path.is_file():
                yield path


def _skipped(folder: Path) -> bool:
    name = folder.name
    return name.startswith(".") or name in SKIPPED_DIRECTORIES or (folder / "pyvenv.cfg").exists()


def read_text(path: Path) -> tuple[str, str]:
    """(text, problem): one of them is empty; the text is decoded as Python would."""
    limit = LARGEST_NOTEBOOK_BYTES if path.suffix == ".ipynb" else LARGEST_BYTES
    try:
        size_bytes = path.stat().st_size
        if size_bytes > limit:
            return "", f"{path} has {size_bytes:,} bytes, more than the {limit:,} that are read, and was left out."
        content = path.read_bytes()
    except OSError as error:
        return "", f"{path} cannot be read ({error.strerror or error}), and was left out."
    if b"\0" in content:
        return "", f"{path} holds binary data, no source, and was left out."
    try:
        encoding, _ = (
            tokenize.detect_encoding(io.BytesIO(content).readline) if path.suffix != ".ipynb" else ("utf-8-sig", [])
        )
        return content.decode(encoding), ""
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        return "", f"{path} is not written in the encoding it should be ({reason}), and was left out."

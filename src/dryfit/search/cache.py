"""What rehearsals found, kept by the content of everything known to decide it.

An entry is found by a key of the words, the card, the versions, the environment and the files named in the words; it
counts while the program's own source files that the rehearsal imported are as they were. Only what fits, runs out of
memory or refuses a measure is kept: what failed may be put right outside of these (a missing file), and is run again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import dryfit
from dryfit.plain import from_plain
from dryfit.rehearse.events import NOT_SWITCHED_ON
from dryfit.search.trial import FITS, TOO_BIG, Trial
from dryfit.virtual_card import paths

_SCHEMA = 1
# Variables that tell one terminal or login from another, and no program what to do.
_OF_THE_TERMINAL = re.compile(
    r"_|PWD|OLDPWD|SHLVL|COLUMNS|LINES|TERM.*|COLORTERM|WINDOWID|DISPLAY|WAYLAND_DISPLAY|TMUX.*|STY|PS\d|LS_COLORS"
    r"|HIST.*|SSH_.*|XDG_.*|DBUS_.*|VSCODE_.*|VTE_VERSION|PYTEST_.*|INVOCATION_ID|JOURNAL_STREAM"
)


def cache_folder() -> Path:
    """Where entries lie: one file each, and any of them can be removed."""
    return paths.cache_folder() / "rehearsals"


def key_of(words: Sequence[str], about: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> str:
    """The key of a rehearsal: the words, and what `about` says of the card and the way it is run, with versions.

    >>> key_of(["train.py"], {"card": "l4"}) == key_of(["train.py"], {"card": "t4"})
    False
    """
    variables = os.environ if environment is None else environment
    material = {
        "schema": _SCHEMA,
        "words": list(words),
        "files": [content_of(Path(word)) for word in files_in(words)],
        "folder": os.getcwd(),  # noqa: PTH109 - a string, whether or not it still exists
        "python": [sys.executable, sys.version],
        "dryfit": [dryfit.__version__, _state_of(Path(dryfit.__file__).parent)],
        "packages": _packages(),
        "environment": sorted(item for item in variables.items() if not _OF_THE_TERMINAL.fullmatch(item[0])),
        "about": about,
    }
    return hashlib.sha256(json.dumps(material, sort_keys=True, default=str).encode()).hexdigest()


def look_up(key: str, folder: Path) -> Trial | None:
    """What a rehearsal with this key found, if the program's source files are as they were then."""
    try:
        entry = json.loads((folder / f"{key}.json").read_text(encoding="utf-8"))
        if all(content_of(Path(file)) == content for file, content in entry["files"].items()):
            return replace(from_plain(Trial, entry["trial"]), from_cache=True)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass  # none, or one that another version wrote or a full disk cut: as if there were none
    return None


def keep(key: str, trial: Trial, files: Iterable[str], folder: Path) -> None:
    """Keep what a rehearsal found; without a place to write there is no cache, and nothing else changes."""
    if trial.kind not in (FITS, TOO_BIG) and trial.how != NOT_SWITCHED_ON:
        return
    entry = {"files": {file: content_of(Path(file)) for file in files}, "trial": trial.to_dict()}
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = folder / f"{key}.{os.getpid()}.{os.urandom(4).hex()}"
        unfinished.write_text(json.dumps(entry), encoding="utf-8")
        unfinished.replace(folder / f"{key}.json")


def files_in(words: Sequence[str]) -> list[str]:
    """The words, or what follows the `=` in them, that are files: a script, a configuration."""
    named = (path for word in words for path in (word, word.rpartition("=")[2]))
    return [path for path in named if os.path.isfile(path)]  # noqa: PTH113 - false for a word that no path can be


def content_of(path: Path) -> str | None:
    """A file's hash; of a large one, which is data, its size and time of change stand for it. None if it is gone."""
    try:
        status = path.stat()
        if status.st_size > 16 << 20:
            return f"{status.st_size} {status.st_mtime_ns}"
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def _state_of(folder: Path) -> int:
    """When dryfit itself was changed last: in a checkout it changes under the same version."""
    return max(path.stat().st_mtime_ns for path in folder.rglob("*") if path.suffix in (".py", ".toml", ".so"))


def _packages() -> list[str]:
    """What is installed, by the names of its folders, which hold the versions."""
    found: set[str] = set()
    for folder in sys.path:
        with contextlib.suppress(OSError):
            found |= {name for name in os.listdir(folder or ".") if name.endswith((".dist-info", ".egg-info"))}  # noqa: PTH208
    return sorted(found)

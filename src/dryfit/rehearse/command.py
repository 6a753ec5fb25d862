"""What `dryfit run` was asked to start: a script, a module, or a command that will start Python itself."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from dryfit.errors import UsageError


def command_line(words: list[str]) -> list[str]:
    """Turn the words after `dryfit run` into the command to execute.

    >>> command_line(["-m", "json.tool"])[1:]
    ['-m', 'json.tool']

    A script is run by this very Python; so is a module (`-m NAME`). Anything else has to be a command (`torchrun`,
    `accelerate`, `python`), looked for beside this Python first and on PATH then, whose Python processes are followed.

    Raises:
        UsageError: nothing to run, no such file, a folder, or no such command.
    """
    if not words:
        raise UsageError("There is no program to run; write one after the options: dryfit run train.py --lr 3e-4")
    current_folder()
    if any("\0" in word for word in words):
        raise UsageError("An argument of a program cannot hold a NUL character.")
    first = words[0]
    if first == "-m":
        if len(words) < 2:
            raise UsageError("-m needs the name of a module to run, as in: dryfit run -m package.train --lr 3e-4")
        return [sys.executable, *words]
    path = Path(first)
    if path.is_dir():
        if (path / "__main__.py").exists():
            return [sys.executable, *words]
        raise UsageError(f"{first} is a folder without a __main__.py; name the script in it that trains.")
    if path.is_file() and not _is_a_command(path):
        return [sys.executable, *words]
    found = shutil.which(first, path=search_path())
    if found:
        return [found, *words[1:]]
    if first.endswith(".py") or os.sep in first:
        raise UsageError(f"There is no file {first} (looked in {current_folder()}); check the path of the script.")
    raise UsageError(
        f"There is neither a file nor a command called {first}; name a script (train.py), a module (-m package.train) "
        "or a command on PATH (torchrun, accelerate launch, python)."
    )


def current_folder() -> Path:
    """The folder the program is started in.

    Raises:
        UsageError: it has been deleted.
    """
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise UsageError("The current folder has been deleted; change to another and start again.") from None


def _is_a_command(path: Path) -> bool:
    """Whether a file is to be executed itself: executable, and not a Python script."""
    return path.suffix != ".py" and os.access(path, os.X_OK)


def search_path() -> str:
    """Where commands are looked for, as if this Python's environment were activated."""
    return os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)))  # noqa: PTH120


def devices_of(words: Sequence[str]) -> int:
    """How many cards a launcher's own words ask for: the number of processes it starts here, 1 without a launcher.

    >>> devices_of(["torchrun", "--nproc-per-node=4", "train.py"]), devices_of(["train.py", "--num_processes", "8"])
    (4, 1)

    A number as torchrun, `accelerate launch` or `deepspeed` write it before the script, or as accelerate's
    `--config_file` has it; "auto" and "gpu" come to 1.
    """
    before_script = " ".join(itertools.takewhile(lambda word: not word.endswith(".py"), words)) + " "
    found = re.search(r"--(?:nproc[-_]per[-_]node|num[-_]processes|num_gpus)[= ](\d+) ", before_script)
    settings = re.search(r"--config[-_]file[= ](\S+) ", before_script)
    if found is None and settings is not None and Path(settings[1]).is_file():
        text = Path(settings[1]).read_text(errors="replace")
        found = re.search(r"^\W*num_processes\W+(\d+)\b", text, re.MULTILINE)
    return int(found[1]) if found else 1

"""The words of a program without what is nobody else's business: paths, names of people and machines, secrets."""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import re
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath

HIDDEN = "<hidden>"
_SECRET = re.compile(r"token(?!s|iz)|secret|passw|credential|auth|key$|[_-]key\b|cookie", re.IGNORECASE)
# As services write their keys: Hugging Face, OpenAI and others, GitHub, AWS, and anything long and random.
_KEY = re.compile(r"^(hf_|sk-|gh[opsu]_|AKIA)|^[A-Za-z0-9_-]{32,}$")


def public_words(words: Sequence[str], private: Iterable[str] | None = None) -> list[str]:
    """The words of a program for others to see: the script's name, and of its arguments those that are no place or key.

    >>> public_words(["/home/me/nets/train.py", "--batch", "8", "--data=/data/me", "--token", "hf_x"], private=[])
    ['train.py', '--batch', '8', '--data=<hidden>', '--token', '<hidden>']

    `private` are names that may not be in them, by default this user's and this machine's.
    """
    names = _names() if private is None else [name.lower() for name in private]
    found = []
    hides_next = False
    script_is_seen = False
    for word in words:
        option, equals, value = word.partition("=")
        if word.endswith(".py") and not script_is_seen:
            script_is_seen = True
            found.append(_shown(PurePath(word).name, names))
        elif equals:  # Hydra's options have no dashes
            found.append(f"{_shown(option, names)}={_shown(value, names, is_secret=bool(_SECRET.search(option)))}")
        else:
            found.append(_shown(word, names, is_secret=hides_next))
        hides_next = word.startswith("-") and not equals and bool(_SECRET.search(word))
    return found


def hash_of_source(files: Iterable[str | Path]) -> str:
    """One hash of the contents of a program's files, whatever they are called and wherever they lie."""
    contents = sorted(hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in files if Path(file).is_file())
    return hashlib.sha256("\n".join(contents).encode()).hexdigest()


def _shown(word: str, names: Sequence[str], *, is_secret: bool = False) -> str:
    is_place = any(sign in word for sign in ("/", "\\", "~", "@"))
    is_key = not word.startswith("--") and _KEY.search(word)
    return HIDDEN if is_secret or is_place or is_key or any(name in word.lower() for name in names) else word


def _names() -> list[str]:
    """This user's and this machine's; a name of one or two letters would be in every word."""
    names = {socket.gethostname(), socket.gethostname().partition(".")[0], Path.home().name}
    with contextlib.suppress(KeyError, OSError):  # a user number without a name, as in containers
        names.add(getpass.getuser())
    return [name.lower() for name in names if len(name) > 2]

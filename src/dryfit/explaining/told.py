"""Explains text: one error's, or a whole log of several processes."""

from __future__ import annotations

import re
from pathlib import Path

from dryfit.errors import UsageError
from dryfit.explaining.explanation import LOG, TEXT, ExplainedMessage, Explanation
from dryfit.oom import read_messages, root_message, settings_in, verdict
from dryfit.places import as_seen_from_here
from dryfit.units import MIB, format_bytes

__all__ = ["GIVEN", "LOG", "STDIN", "TEXT", "explain_stdin", "explain_text", "reads_as_text"]

STDIN, GIVEN = "stdin", "the text"
"""The names of text that is no file's."""

_HEAD_BYTES = 4096
_MOST_BYTES = 256 * MIB
# How snapshots, recordings, checkpoints and what they are packed in begin; a page of PyTorch's viewer is text, too.
_BINARY = re.compile(rb"\x80[\x02-\x05]|PK\x03\x04|\x1f\x8b|\xfd7zXZ|\x28\xb5\x2f\xfd|BZh", re.DOTALL)
_PAGE = re.compile(rb"\s*<(?:!doctype\s+html|html|head|script)\b", re.IGNORECASE)


def explain_text(text: str, name: str, *, kind: str) -> Explanation:
    """Explain each out-of-memory message of a text, the one that the others follow from first.

    Raises:
        UsageError: nothing in it is about memory that ran out.
    """
    messages = read_messages(text)
    if not messages:
        raise UsageError(
            f"{_at_the_start(name)} holds no out-of-memory message, of PyTorch or of the libraries under it: "
            "give the whole error, or the log around it."
        )
    settings = settings_in(text)
    root = root_message(messages)
    ordered = sorted(messages, key=lambda message: message is not root)
    explained = tuple(
        ExplainedMessage(message=message, finding=verdict(message, settings=settings)) for message in ordered
    )
    findings = tuple(each.finding for each in explained)
    return Explanation(kind=kind, name=name, findings=findings, messages=explained, next_step=findings[0].advice)


def explain_stdin(content: bytes) -> Explanation:
    """Explain what was piped: a log, or the text of an error.

    Raises:
        UsageError: it is no text, or nothing in it is about memory that ran out.
    """
    if _is_binary(content[:_HEAD_BYTES]):
        raise UsageError("What comes from stdin is no text; name a snapshot or recording as a file.")
    return explain_text(content.decode(errors="replace"), STDIN, kind=LOG)


def _at_the_start(name: str) -> str:
    return name.capitalize() if name in (STDIN, GIVEN) else name


def reads_as_text(path: Path) -> str | None:
    """The text of a file that is text; None for one that `open_recording` is to read, or to refuse.

    Raises:
        UsageError: it is text of a size that no log should have.
    """
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
            if not head or _is_binary(head) or _PAGE.match(head):
                return None
            content = head + file.read(_MOST_BYTES)
    except OSError:
        return None  # open_recording says why
    if len(content) > _MOST_BYTES:
        raise UsageError(
            f"{as_seen_from_here(str(path))} is a text of more than {format_bytes(_MOST_BYTES)}; give the part of it "
            "around the error."
        )
    return content.decode(errors="replace")


def _is_binary(head: bytes) -> bool:
    return _BINARY.match(head) is not None or b"\0" in head

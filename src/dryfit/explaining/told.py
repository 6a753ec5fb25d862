"""Explains text: one error's, or a whole log of several processes."""

from __future__ import annotations

import re
from pathlib import Path

from dryfit.errors import UsageError
from dryfit.explaining.explanation import LOG, TEXT, ExplainedMessage, Explanation
from dryfit.oom import read_messages, root_message, settings_in, verdict
from dryfit.places import as_seen_from_here
from dryfit.units import MIB, format_bytes

__all__ = ["LOG", "TEXT", "explain_text", "reads_as_text"]

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
            f"{name[:1].upper()}{name[1:]} holds no out-of-memory message, of PyTorch or of the libraries under it: "
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
            if not head or _BINARY.match(head) or _PAGE.match(head) or b"\0" in head:
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

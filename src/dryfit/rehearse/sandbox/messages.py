"""Messages between dryfit, the keeper and what the keeper forks: marshalled dictionaries with their length in front.

`marshal` because all ends are one interpreter, and because importing `json` would take as long as the keeper's start.
"""

from __future__ import annotations

import marshal
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

    Message: TypeAlias = dict[str, Any]

_LENGTH_BYTES = 4


def write(descriptor: int, message: Message) -> None:
    """Send a message; one that nobody is there to read any more is dropped."""
    body = marshal.dumps(message)
    data = len(body).to_bytes(_LENGTH_BYTES, "little") + body
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except BrokenPipeError:
        pass


def read(descriptor: int) -> Message:
    """Wait for one message.

    Raises:
        EOFError: the other end was closed before a whole message came.
    """
    length = int.from_bytes(_exactly(descriptor, _LENGTH_BYTES), "little")
    return _message(_exactly(descriptor, length))


def read_available(descriptor: int) -> list[Message]:
    """The messages that have come by now; the descriptor must not block, and a sender writes a message in one piece."""
    data = b""
    try:
        while chunk := os.read(descriptor, 1 << 16):
            data += chunk
    except BlockingIOError:
        pass
    found = []
    while data:
        length = int.from_bytes(data[:_LENGTH_BYTES], "little")
        found.append(_message(data[_LENGTH_BYTES : _LENGTH_BYTES + length]))
        data = data[_LENGTH_BYTES + length :]
    return found


def _exactly(descriptor: int, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = os.read(descriptor, count - len(data))
        if not chunk:
            raise EOFError
        data += chunk
    return data


def _message(body: bytes) -> Message:
    message: Message = marshal.loads(body)
    return message

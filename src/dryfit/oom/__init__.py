"""Out-of-memory errors: their text, the numbers in it, and what they say about the cause. No torch.

    forms.py            how each kind of message begins, and whether an error is one
    lines.py            a log taken apart: colours, prefixes, ranks
    reading.py          the messages of a text: tuple[OomMessage, ...]
    device_numbers.py   the numbers of an allocator's message
    traceback.py        the line of the program that failed
    amounts.py          one size, as messages print it
    message.py          what came out: an OomMessage
    settings.py         allocator settings, as given and as a text names them
    judging.py          one cause and one next step for a message: a Finding
    by_form.py          ... that follow from the form alone
    by_numbers.py       ... that the numbers prove
    next_steps.py       what to do, by what is there and what is set already
    conclusion.py       what is known of a failure, and what was concluded

Each name is loaded when it is first used: an error that never comes costs no import.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dryfit.oom.forms import says_out_of_memory
    from dryfit.oom.judging import verdict
    from dryfit.oom.message import OomMessage
    from dryfit.oom.reading import read_messages, root_message
    from dryfit.oom.settings import settings_in

__all__ = ["OomMessage", "read_messages", "root_message", "says_out_of_memory", "settings_in", "verdict"]

_MODULES = {
    "OomMessage": "message",
    "read_messages": "reading",
    "root_message": "reading",
    "says_out_of_memory": "forms",
    "settings_in": "settings",
    "verdict": "judging",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)

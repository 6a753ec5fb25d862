"""One line on the terminal that says where the rehearsal is; nothing where stderr is not a terminal."""

from __future__ import annotations

import time
from typing import TextIO

from dryfit.rehearse.events import EventFolder
from dryfit.units import format_bytes


class ProgressLine:
    """Redraws one line from the newest events of the processes; `clear` removes it."""

    def __init__(self, stream: TextIO | None, events: EventFolder) -> None:
        self._stream = stream if stream is not None and stream.isatty() else None
        self._events = events
        self._began = time.monotonic()
        self._drawn = False

    def update(self) -> None:
        """Redraw."""
        if self._stream is None:
            return
        self._drawn = True
        self._stream.write(f"\r\x1b[2Kdryfit: {self._state()} ({time.monotonic() - self._began:.0f} s)")
        self._stream.flush()

    def clear(self) -> None:
        """Take the line away."""
        if self._stream is not None and self._drawn:
            self._stream.write("\r\x1b[2K")
            self._stream.flush()

    def _state(self) -> str:
        newest = [event for events in self._events.read() for event in events]
        steps = [event for event in newest if event["event"] == "step"]
        if steps:
            reserved_bytes = max(reserved for event in steps for _, reserved, _ in event["phases"].values())
            return f"step {max(event['step'] for event in steps)}, {format_bytes(reserved_bytes)} reserved"
        return "before the first step" if any(e["event"] == "torch" for e in newest) else "starting"

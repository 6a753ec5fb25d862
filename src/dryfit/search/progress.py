"""Where a search is, on stderr: one line that is redrawn on a terminal, a line for each rehearsal elsewhere."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Sequence
from typing import TextIO

from dryfit.rehearse.events import NOT_SWITCHED_ON
from dryfit.search.trial import FAILED, FITS, Trial
from dryfit.units import format_bytes


class SearchProgress:
    """Says what is rehearsed and what came of it, from any thread; without a stream it says nothing."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._redraws = stream is not None and stream.isatty()
        self._lock = threading.Lock()
        self._running: dict[str, None] = {}
        self._began, self._done, self._newest = time.monotonic(), 0, ""
        self._is_drawn = False

    def begins(self, what: str) -> None:
        """Say that a rehearsal has begun; `what` is its value and card."""
        with self._lock:
            self._running[what] = None
            self._draw()

    def ended(self, what: str, trial: Trial, *, has_limit: bool = True) -> None:
        """Say what came of it; without a limit of the card's memory nothing is said to fit."""
        with self._lock:
            self._running.pop(what, None)
            self._done += 1
            self._newest = f"{what}: {_outcome(trial, has_limit)}"
            if self._redraws:
                self._draw()
            elif self._stream is not None:
                print(f"dryfit: {self._newest}", file=self._stream, flush=True)

    def clear(self) -> None:
        """Take the line away."""
        with self._lock:
            if self._stream is not None and self._is_drawn:
                self._stream.write("\r\x1b[2K")
                self._stream.flush()
                self._is_drawn = False

    def _draw(self) -> None:
        if self._stream is None or not self._redraws:
            return
        line = state_line(list(self._running), self._newest, self._done, time.monotonic() - self._began)
        width = shutil.get_terminal_size().columns
        self._stream.write(f"\r\x1b[2K{line if len(line) < width else line[: width - 4] + '...'}")
        self._stream.flush()
        self._is_drawn = True


def state_line(running: Sequence[str], newest: str, done: int, seconds: float) -> str:
    """The line of a terminal.

    >>> state_line(["batch 22 on l4"], "batch 4 on l4: fits", 2, 5.4)
    'dryfit: batch 4 on l4: fits; rehearsing batch 22 on l4 (2 done, 5 s)'
    """
    now = f"rehearsing {', '.join(running)}" if running else ""
    return f"dryfit: {'; '.join(filter(None, (newest, now)))} ({done} done, {seconds:.0f} s)"


def _outcome(trial: Trial, has_limit: bool) -> str:
    cached = ", from cache" if trial.from_cache else f" ({trial.seconds:.1f} s)"
    if trial.kind == FITS:
        return f"{'fits,' if has_limit else 'takes'} {format_bytes(trial.peak_total_bytes)}{cached}"
    if trial.how == NOT_SWITCHED_ON:
        return f"{NOT_SWITCHED_ON}{cached}"
    why = trial.error.splitlines()[0] if trial.kind == FAILED and trial.error else trial.kind
    return f"{why}{cached}"

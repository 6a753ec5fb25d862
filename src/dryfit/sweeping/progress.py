"""Where a sweep is, on stderr: one line that is redrawn on a terminal, a line for each cell elsewhere."""

from __future__ import annotations

import shutil
import time
from typing import TextIO

from dryfit.sweeping.row import Outcome
from dryfit.units import format_bytes


class SweepProgress:
    """Says how many cells are done and what came of the last; without a stream it says nothing."""

    def __init__(self, stream: TextIO | None, *, cells: int, kept: int, failed: int) -> None:
        self._stream, self._cells, self._kept, self._failed = stream, cells, kept, failed
        self._redraws = stream is not None and stream.isatty()
        self._began, self._done = time.monotonic(), 0
        if kept and stream is not None:
            print(f"dryfit: {kept} of {cells} cells were done before.", file=stream, flush=True)

    def ended(self, cell: str, outcome: Outcome) -> None:
        """Say what came of a cell."""
        self._done += 1
        self._failed += bool(outcome.error)
        if self._stream is None:
            return
        if not self._redraws:
            done = self._kept + self._done
            print(f"dryfit: {done} of {self._cells}: {cell}: {in_short(outcome)}", file=self._stream, flush=True)
            return
        line = state_line(
            self._kept + self._done,
            self._cells,
            self._failed,
            time.monotonic() - self._began,
            self._done,
            f"{cell}: {in_short(outcome)}",
        )
        width = shutil.get_terminal_size().columns
        self._stream.write(f"\r\x1b[2K{line if len(line) < width else line[: width - 4] + '...'}")
        self._stream.flush()

    def clear(self) -> None:
        """Take the line away."""
        if self._redraws and self._stream is not None:
            self._stream.write("\r\x1b[2K")
            self._stream.flush()


def state_line(done: int, cells: int, failed: int, seconds: float, done_now: int, newest: str) -> str:
    """The line of a terminal; what is left is taken to go on at the pace of the `done_now` cells so far.

    >>> state_line(30, 200, 1, 40.0, 20, "train.py batch 8 on l4: fits")
    'dryfit: 30 of 200 cells, 1 failed, 340 s left; train.py batch 8 on l4: fits'
    """
    failures = f", {failed} failed" if failed else ""
    left = f", {seconds / done_now * (cells - done):.0f} s left" if done_now else ""
    return f"dryfit: {done} of {cells} cells{failures}{left}; {newest}"


def in_short(outcome: Outcome) -> str:
    """What came of a cell, on one line."""
    if outcome.error:
        return outcome.error
    if outcome.smallest_card is not None:
        return f"{format_bytes(outcome.peak_total_bytes or 0)}, {outcome.smallest_card} holds it"
    verdict = outcome.verdict if outcome.verdict != "unknown" else "too close to call"
    return f"{verdict}, {format_bytes(outcome.peak_total_bytes or 0)} ({outcome.seconds:.1f} s)"

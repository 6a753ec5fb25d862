"""The rank that this process is among real ranks, and what these agree on: after which step to stop.

A rank that has seen enough must not leave while another needs it. So each says after every step whether it has, in a
file of its own beside the events, and stops where all have after the same step.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

_ENOUGH, _NOT_YET, _ENDED = b"+", b"-", b"."
# How long a rank that has seen enough waits for one that has not finished as many steps, as one that evaluates while
# the others train. One that is in no training loop never does.
_PATIENCE_SECONDS = 60.0
_PAUSE_SECONDS = 0.005


class Rank:
    """This process's number in its world, once it has one; `on_rank(rank, ranks)` is called then.

    With `alone` there are no other processes, and nothing is asked of them.
    """

    def __init__(self, folder: str, on_rank: Callable[[int, int], None], *, alone: bool) -> None:
        self._on_rank = on_rank
        self.begin_anew(folder, alone=alone)

    def begin_anew(self, folder: str, *, alone: bool) -> None:
        """Be no rank so far, as in a forked child."""
        self._folder, self._alone = Path(folder), alone
        self._rank, self._steps = -1, 0
        self._others: list[int] = []

    def watch(self, c10d: ModuleType) -> None:
        """Learn the rank from `torch.distributed.init_process_group`, which has just been defined."""
        real = c10d.init_process_group

        @functools.wraps(real)
        def init_process_group(*args: Any, **kwargs: Any) -> None:
            real(*args, **kwargs)
            self._becomes(c10d.get_rank(), c10d.get_world_size())

        c10d.init_process_group = init_process_group  # type: ignore[attr-defined]

    def all_have_seen_enough(self, steps: int, *, this_one: bool) -> bool:
        """Tell the others about a step that is over, and say whether all have seen enough after so many steps.

        Only one that has waits for what the others say, and not for those that have ended.
        """
        if not self._others:
            return this_one
        self._say(_ENOUGH if this_one else _NOT_YET, steps - 1)
        self._steps = steps
        if not this_one:
            return False
        until = time.monotonic() + _PATIENCE_SECONDS
        while True:
            said = [self._said(rank, steps) for rank in self._others]
            if _NOT_YET in said:
                return False
            if b"" not in said or time.monotonic() > until:
                return True
            time.sleep(_PAUSE_SECONDS)

    def ends(self) -> None:
        """This process is about to end; nobody is to wait for it."""
        if self._others:
            self._say(_ENDED, self._steps)

    def _becomes(self, rank: int, ranks: int) -> None:
        if self._alone or ranks < 2:
            return
        from dryfit.virtual_card import calls, in_front  # here: every process of a rehearsal reads this module first

        # A measure may spread a program for one card over several, and then says so to the card alone.
        if in_front() and calls.plays_alone():
            return
        self._on_rank(rank, ranks)
        self._rank = rank
        self._others = [other for other in range(ranks) if other != rank]
        self._file(rank).write_bytes(b"")  # in place of what a process has said that was this rank before

    def _file(self, rank: int) -> Path:
        return self._folder / f"{rank}.rank"

    def _say(self, word: bytes, at: int) -> None:
        """Each step has a place: one may have passed before the process group was made, or made again."""
        descriptor = os.open(self._file(self._rank), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(descriptor, word, at)
        finally:
            os.close(descriptor)

    def _said(self, rank: int, steps: int) -> bytes:
        """What a rank has said after so many steps, a byte; b"" if it has not come so far."""
        try:
            words = self._file(rank).read_bytes()
        except OSError:
            return b""
        return _ENOUGH if words.endswith(_ENDED) else words[steps - 1 : steps]

"""A program whose memory is a formula, rehearsed at once: what `warm_rehearsals` gives, without processes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dryfit.cards import find_card
from dryfit.rehearse.result import Ending, OutOfMemory, Result

MIB, GIB = 1 << 20, 1 << 30
Need = Callable[[list[str]], int]


def result_of(
    words: Sequence[str],
    need_bytes: int,
    *,
    gpu: str,
    memory_bytes: int | None = None,
    reserve_bytes: int = 0,
    **fields: Any,
) -> Result:
    """What a rehearsal says of a program that takes so much of the card."""
    card = find_card(gpu, memory_bytes=memory_bytes)
    free_bytes = card.usable_bytes - reserve_bytes
    fits = need_bytes <= free_bytes
    total = min(need_bytes, free_bytes) + card.outside_bytes
    margin = card.outside_margin_bytes
    oom = OutOfMemory(
        step=1, phase="backward", requested_bytes=need_bytes, free_bytes=free_bytes, allowed_bytes=card.total_bytes,
        allocated_bytes=0, reserved_bytes=0, caught=False, count=1, message="CUDA out of memory.", file=None, line=None,
    )  # fmt: skip
    verdict = "does not fit" if not fits else "fits" if total + margin <= card.total_bytes else "unknown"
    values: dict[str, Any] = {
        "verdict": verdict,
        "card": card.to_dict(),
        "program": list(words),
        "peak_allocated_bytes": min(need_bytes, free_bytes),
        "peak_reserved_bytes": min(need_bytes, free_bytes),
        "peak_total_bytes": total,
        "peak_total_range_bytes": {"low": total - margin, "expected": total, "high": total + margin},
        "usable_bytes": card.usable_bytes,
        "peak_step": 2,
        "peak_phase": "backward",
        "steps": 3,
        "out_of_memory": None if fits else oom,
        "ending": Ending(how="steady", sentence="Stopped after 3 optimiser steps.", exit_status=0)
        if fits
        else Ending(how="out of memory", sentence=f"{words[0]} ran out of memory.", error_type="OutOfMemoryError"),
        "wall_seconds": 2.0,
        "exit_code": 0 if fits else 1,
    }
    return Result(**values | fields)


def failure(words: Sequence[str], *, gpu: str, error: str = "ValueError", message: str = "no", **_: Any) -> Result:
    """What a rehearsal says of a program that raises."""
    sentence = f"{words[0]} failed before its first optimiser step: {error}: {message}. Its own output above says more."
    ending = Ending(how="raised", sentence=sentence, exit_status=1, error_type=error, error_message=message)
    fields = {"peak_total_bytes": 0, "peak_reserved_bytes": 0, "peak_allocated_bytes": 0, "verdict": "unknown"}
    return result_of(words, 0, gpu=gpu, ending=ending, exit_code=2, **fields)


class Simulated:
    """Stands in for `warm_rehearsals`; `calls` are the words and options of every rehearsal that was run."""

    def __init__(self, rehearse: Callable[..., Result]) -> None:
        self._rehearse = rehearse
        self._lock = threading.Lock()
        self.options: dict[str, Any] = {}
        self.calls: list[tuple[tuple[str, ...], dict[str, Any]]] = []

    @contextlib.contextmanager
    def __call__(self, program: Sequence[str], **options: Any) -> Iterator[Callable[..., Result]]:
        self.options = options
        yield self._one

    def _one(self, words: list[str], *, stop: threading.Event, **options: Any) -> Result:
        with self._lock:
            self.calls.append((tuple(words), options))
        return self._rehearse(words, **options)


def takes(need: Need) -> Simulated:
    """A program that takes what a formula of its words says."""
    return Simulated(lambda words, **options: result_of(words, need(words), **options))


def number_after(words: Sequence[str], option: str) -> int:
    return int(words[list(words).index(option) + 1])

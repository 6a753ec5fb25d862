"""The process that plays recorded requests through PyTorch's own allocator, on the virtual card in front of it.

It imports torch once and forks for each playing: a fork has touched no card yet, so the allocator takes the settings
and the card of that fork's environment. It reads and writes lines of JSON; `rehearse.retrace` is the other end.
"""

from __future__ import annotations

import json
import os
import sys
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

# What a request is; `rehearse.requests` writes them. Of an allocation `number` is the size that is asked for, in bytes,
# and it takes the next slot; of the others it is a slot.
(
    ALLOC,
    ALLOC_TO_WAIT,  # its free will wait for another stream
    FREE,
    WAIT,  # freed by the program, and in use by another stream
    FREE_AFTER_WAIT,
    EMPTY_CACHE,
    TRY,  # a request that failed when it was recorded
    DROP_POOL,  # nothing holds this memory pool any more
    BEGIN,  # what comes before sets up the state in which the recording began
) = range(9)
COLUMNS = (("kind", "B"), ("number", "Q"), ("stream", "Q"), ("pool", "H"))


def serve() -> None:
    """Play what is asked for on standard input, until that ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import torch

    for line in sys.stdin:
        job = json.loads(line)
        told, tell = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(told)
            _answer(tell, job)
        os.close(tell)
        with os.fdopen(told) as file:
            text = file.read()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        answer = json.loads(text) if text else {"failure": f"the process ended with exit status {status}"}
        print(json.dumps({"torch": torch.__version__, **answer}), file=answers, flush=True)


def _answer(tell: int, job: dict[str, Any]) -> None:
    try:
        answer = _play(job)
    except Exception as error:
        answer = {"failure": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}
    with os.fdopen(tell, "w") as file:
        json.dump(answer, file)
    os._exit(0)


def _play(job: dict[str, Any]) -> dict[str, Any]:
    os.environ.update(job["variables"])
    columns = {}
    with Path(job["requests"]).open("rb") as file:
        for name, typecode in COLUMNS:
            columns[name] = array(typecode)
            columns[name].fromfile(file, job["count"])
    import torch

    torch.cuda.init()  # type: ignore[no-untyped-call]
    if job["memory_fraction"] is not None:
        torch.cuda.set_per_process_memory_fraction(job["memory_fraction"], 0)
    began = time.monotonic()
    player = _Player(columns)
    player.play()
    answer = player.answer()
    answer["seconds"] = time.monotonic() - began
    return answer


class _Player:
    def __init__(self, columns: dict[str, array[int]]) -> None:
        import torch

        self._columns = columns
        self._alloc: Callable[[int, int], int] = torch._C._cuda_cudaCachingAllocator_raw_alloc
        self._delete: Callable[[int], None] = torch._C._cuda_cudaCachingAllocator_raw_delete
        self._blocks: list[int] = []  # their addresses by slot; 0 once they are given back
        self._size_of: dict[int, int] = {}  # of blocks whose free will wait, by slot
        self._waiting: dict[int, int] = {}  # sizes by slot
        self._peaks = {"allocated": 0, "active": 0, "reserved": 0}
        self._begin: dict[str, int] = {}
        self._ooms, self._unserved, self._failed_at = 0, 0, -1
        self._pools: dict[int, Any] = {}

    def play(self) -> None:
        """Make all requests, up to the first that fails where the recorded one did not."""
        import torch

        alloc, delete, blocks = self._alloc, self._delete, self._blocks
        columns = (self._columns[name] for name, _ in COLUMNS)
        for place, (kind, number, stream, pool) in enumerate(zip(*columns, strict=True)):
            if kind == ALLOC and not pool:
                try:
                    blocks.append(alloc(number, stream))
                except torch.cuda.OutOfMemoryError:
                    if not self._serve_after_waiting(number, stream, pool, place):
                        return
            elif kind == FREE:
                if blocks[number]:
                    delete(blocks[number])
                    blocks[number] = 0
            elif kind in (ALLOC, ALLOC_TO_WAIT):
                before = self._stats()["allocated_bytes"]["all"]["current"] if kind == ALLOC_TO_WAIT else 0
                try:
                    blocks.append(self._alloc_in(pool, number, stream))
                except torch.cuda.OutOfMemoryError:
                    if not self._serve_after_waiting(number, stream, pool, place):
                        return
                if kind == ALLOC_TO_WAIT:
                    self._size_of[len(blocks) - 1] = self._stats()["allocated_bytes"]["all"]["current"] - before
            elif kind == WAIT:
                self._take_peaks()
                if blocks[number]:
                    self._waiting[number] = self._size_of.get(number, 0)
            elif kind == FREE_AFTER_WAIT:
                self._take_peaks()
                if blocks[number]:
                    delete(blocks[number])
                    blocks[number] = 0
                self._waiting.pop(number, None)
            elif kind == TRY:
                self._try(number, stream, pool)
            elif kind == EMPTY_CACHE:
                torch.cuda.empty_cache()
            elif kind == DROP_POOL:
                self._pools.pop(pool, None)
            elif kind == BEGIN:
                self._take_peaks()
                stats = self._stats()
                waiting = sum(self._waiting.values())
                self._begin = {
                    "allocated": stats["allocated_bytes"]["all"]["current"] - waiting,
                    "reserved": stats["reserved_bytes"]["all"]["current"],
                    "retries": stats["num_alloc_retries"],
                }
                self._peaks = dict.fromkeys(self._peaks, 0)
                self._take_peaks()

    def answer(self) -> dict[str, Any]:
        self._take_peaks()
        stats = self._stats()
        return {
            "peaks": self._peaks,
            "begin": self._begin,
            "end_reserved": stats["reserved_bytes"]["all"]["current"],
            "retries": stats["num_alloc_retries"] - self._begin.get("retries", 0),
            "ooms": self._ooms,
            "unserved": self._unserved,
            "failed_at": self._failed_at,
        }

    def _try(self, number: int, stream: int, pool: int) -> None:
        import torch

        try:
            block = self._alloc_in(pool, number, stream)
        except torch.cuda.OutOfMemoryError:
            self._ooms += 1
            self._unserved += 1
        else:
            self._delete(block)

    def _serve_after_waiting(self, number: int, stream: int, pool: int, place: int) -> bool:
        """Do as the allocator does before it fails: wait for the other streams, and try once more."""
        import torch

        if self._waiting:
            self._take_peaks()
            for slot in list(self._waiting):
                self._delete(self._blocks[slot])
                self._blocks[slot] = 0
            self._waiting.clear()
            try:
                self._blocks.append(self._alloc_in(pool, number, stream))
                return True
            except torch.cuda.OutOfMemoryError:
                pass
        self._ooms += 1
        self._failed_at = place
        return False

    def _alloc_in(self, pool: int, number: int, stream: int) -> int:
        if not pool:
            return self._alloc(number, stream)
        import torch

        if pool not in self._pools:
            self._pools[pool] = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(self._pools[pool]):
            return self._alloc(number, stream)

    def _stats(self) -> dict[str, Any]:
        import torch

        stats: dict[str, Any] = torch.cuda.memory_stats_as_nested_dict(0)
        return stats

    def _take_peaks(self) -> None:
        """Of blocks that wait for another stream the allocator believes that they are still the program's."""
        import torch

        stats, waiting = self._stats(), sum(self._waiting.values())
        for name in self._peaks:
            peak = stats[f"{name}_bytes"]["all"]["peak"] - (waiting if name == "allocated" else 0)
            self._peaks[name] = max(self._peaks[name], peak)
        torch.cuda.reset_peak_memory_stats(0)


if __name__ == "__main__":
    serve()

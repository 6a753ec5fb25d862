"""Uses the allocator in one way or another, and writes snapshots: `allocations.py FOLDER CASE,SETTINGS ...`.

Each case is a fork, for the allocator reads its settings once. Prints as JSON, for each, what the allocator counted
since the history began.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch._inductor.codecache  # a snapshot imports it, here once for all forks

MIB = 1 << 20


def take(size_bytes: int) -> torch.Tensor:
    return torch.empty(size_bytes, dtype=torch.uint8, device="cuda")


def fragments() -> None:
    """Batches that grow; of each a part is kept, in its segment, and the next batch is larger than the hole."""
    kept = []
    for number in range(14):
        take((100 + 10 * number) * MIB)
        rest = take((60 + 10 * number) * MIB)
        kept.append(take(40 * MIB))
        del rest
    kept.append(take(1900 * MIB))  # the line that fails


def too_big() -> None:
    kept = [take(500 * MIB) for _ in range(5)]
    kept.append(take(2048 * MIB))


def limited() -> None:
    torch.cuda.set_per_process_memory_fraction(0.25)
    kept = [take(300 * MIB) for _ in range(3)]
    kept.append(take(300 * MIB))


def retried() -> None:
    """The cache has to be given back once, and then there is room."""
    for size in (600, 700, 800, 900, 1000, 1100):
        take(size * MIB)
    take(2000 * MIB)


def emptied() -> None:
    for size in (100, 200, 300):
        kept = take(size * MIB)
        del kept
        torch.cuda.empty_cache()
    take(30 * MIB)


def streams() -> None:
    side = torch.cuda.Stream()
    kept = []
    for number in range(6):
        here = take((30 + number) * MIB)
        here.record_stream(side)
        with torch.cuda.stream(side):
            kept.append(take(11 * MIB))
        del here
        kept.append(take(5 * MIB))
    del kept[::2]
    take(400 * MIB)


def pools() -> None:
    pool = torch.cuda.MemPool()
    kept = [take(25 * MIB)]
    with torch.cuda.use_mem_pool(pool):
        kept.append(take(25 * MIB))
        take(50 * MIB)
    take(50 * MIB)
    kept.append(take(500))


def caught() -> None:
    """A request fails, and the program goes on with a smaller one."""
    kept = take(1500 * MIB)
    try:
        take(3000 * MIB)
    except torch.cuda.OutOfMemoryError:
        kept = take(100 * MIB)
    del kept


def idle() -> None:
    pass


def run(case: str, path: str) -> None:
    functions: dict[str, Callable[[], None]] = {
        function.__name__: function
        for function in (fragments, too_big, limited, retried, emptied, streams, pools, caught, idle)
    }
    held = [take(40 * MIB), take(700), take(1800)] if case.endswith("-after-start") else []
    spare = take(60 * MIB) if held else None
    del spare
    torch.cuda.init()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.memory._record_memory_history(stacks="python")  # those of C++ take seconds to name
    with contextlib.suppress(torch.cuda.OutOfMemoryError):
        functions[case.removesuffix("-after-start")]()
    stats = torch.cuda.memory_stats()
    Path(path).write_bytes(pickle.dumps(torch.cuda.memory._snapshot()))
    names = ("allocated_bytes", "active_bytes", "reserved_bytes")
    figures = {name: stats[f"{name}.all.peak"] for name in names} | {"retries": stats["num_alloc_retries"]}
    print(json.dumps(figures), flush=True)


def main(folder: str, *wanted: str) -> None:
    for number, each in enumerate(wanted):
        case, _, settings = each.partition(",")
        child = os.fork()
        if child == 0:
            os.environ["PYTORCH_CUDA_ALLOC_CONF"] = settings
            run(case, f"{folder}/{number}.pickle")
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0, each


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The table of docs/distributed.md, and what its rehearsals cost: `python benchmarks/distributed.py [WORD]`.

Each row is one `dryfit run` of an example, whose line has WORD in it where one is given. Seconds are those of all its
ranks, host memory is the largest of its processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from dryfit.units import MIB

EXAMPLES = Path(__file__).parents[1] / "examples" / "distributed"
LINES = (
    "--world 8 ddp.py",
    "--world 8 ddp.py view",
    "--world 8 ddp.py no_sync",
    "--world 8 ddp.py view no_sync",
    "--world 8 ddp.py view no_sync zeros",
    "--world 8 zero.py",
    "--world 6 --ranks all zero.py",
    "--world 8 accumulate.py",
    "--world 8 accumulate.py no_sync",
    "--world 6 --ranks 0,last fsdp1.py",
    "--world 6 fsdp1.py bf16",
    "--world 6 fsdp1.py grad_op",
    "--world 6 fsdp1.py hybrid",
    "--world 6 fsdp1.py offload",
    "--world 6 fsdp1.py no_sync",
    "--world 6 --ranks 0,last fsdp2.py",
    "--world 48 --ranks 0,last fsdp2.py",
    "--world 6 fsdp2.py bf16",
    "--world 6 fsdp2.py keep",
    "--world 6 fsdp2.py hsdp",
    "--world 6 fsdp2.py offload",
    "--world 6 fsdp2.py checkpoint",
    "--world 1 segmentation.py",
    "--world 2 segmentation.py",
    "--world 2 segmentation.py wrap",
    "--world 2 segmentation.py ddp",
    "--world 4 --ranks all zero.py head",
    "--world 1 tensor_parallel.py",
    "--world 4 --ranks 0,last tensor_parallel.py",
    "--world 4 --ranks 0,last tensor_parallel.py sequence",
    "--world 4 --ranks 0,last tensor_parallel.py loss",
    "--world 4 --ranks 0,last tensor_parallel.py sequence loss",
    "--world 4 --ranks 0,last tensor_parallel.py fsdp sequence loss",
    "--world 1 context_parallel.py",
    "--world 2 --ranks 0,last context_parallel.py",
    "--world 4 --ranks 0,last context_parallel.py",
    "--world 4 --ranks 0,last context_parallel.py alltoall",
    "--world 8 --ranks 0,last context_parallel.py",
    "--world 1 expert_parallel.py",
    "--world 4 expert_parallel.py",
    "--world 8 expert_parallel.py",
    "--world 64 --ranks 0 llama_70b.py",
    "--world 64 --ranks last llama_70b.py",
)


def main() -> None:
    wanted = " ".join(sys.argv[1:])
    print(
        "| `dryfit run` | allocated (MiB) | reserved (MiB) | a step sends (MiB) | seconds | processor s | host (MiB) |"
    )
    print("|---|---|---|---|---|---|---|")
    for line in LINES:
        if wanted in line:
            print(_row(line), flush=True)


def _row(line: str) -> str:
    words = [str(EXAMPLES / word) if word.endswith(".py") else word for word in line.split()]
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder, "result.json")
        began = time.monotonic()
        with Path(folder, "output").open("w+") as output:
            command = [sys.executable, "-m", "dryfit", "run", "--gpu", "h100", "-o", str(saved), *words]
            started = subprocess.Popen(command, stdout=output, stderr=output, cwd=folder)
            _, status, usage = os.wait4(started.pid, 0)
            started.returncode = os.waitstatus_to_exitcode(status)
            seconds = time.monotonic() - began
            if not saved.exists():
                output.seek(0)
                raise SystemExit(f"{line} left no result:\n{output.read()}")
        result = json.loads(saved.read_text())
    peaks = result["ranks"] or [result]
    figures = [
        _span([peak["peak_allocated_bytes"] for peak in peaks]),
        _span([peak["peak_reserved_bytes"] for peak in peaks]),
        f"{sum(each['sent_bytes'] for each in result['communication'].values()) / MIB:,.2f}",
        f"{seconds:.0f}",
        f"{usage.ru_utime + usage.ru_stime:.0f}",
        f"{usage.ru_maxrss * 1024 / MIB:,.0f}",
    ]
    return f"| `{line}` | {' | '.join(figures)} |"


def _span(sizes: Sequence[int]) -> str:
    """The one size of all ranks; or that of each, the first rank's first, where there are several."""
    return " / ".join(dict.fromkeys(f"{size / MIB:,.2f}" for size in sizes))


if __name__ == "__main__":
    main()

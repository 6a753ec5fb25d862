"""What the two classic mistakes cost, step by step: `python benchmarks/mistakes.py [DF101] [DF201]`.

Prints the curves of docs/watch.md, each with the mistake and without. DF201 is rehearsed on a virtual H100. DF101 costs
memory of the host, so its loop is really run, on the processor of this machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from dryfit.units import format_bytes

LOOPS = str(Path(__file__).parent / "mistake_loops.py")
WIDTH = 40


def main(words: Sequence[str]) -> None:
    for code in words or ("DF101", "DF201"):
        host = code == "DF101"
        print(f"{code}: {'the process in the host' if host else 'tensors on the card'}, after each stretch\n")
        wrong, right = curve(code, host=host), curve(code, "--rightly", host=host)
        most = max(size for _, size in wrong)
        for (number, size), (_, without) in zip(wrong, right, strict=True):
            bar = "#" * round(WIDTH * size / most)
            mark = round(WIDTH * without / most)
            print(f"{number:>4}  {format_bytes(size):>10}  {bar[:mark]}|{bar[mark:]}  without: {format_bytes(without)}")
        print()


def curve(code: str, *words: str, host: bool) -> list[tuple[int, int]]:
    """After each stretch its number, and the bytes."""
    rehearsed = [] if host else ["-m", "dryfit", "run", "--gpu", "h100", "--steps", "all"]
    done = subprocess.run(
        [sys.executable, *rehearsed, LOOPS, code, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,  # where a rehearsed program's own output goes
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("curve")]
    return [(int(number), int(of_host if host else of_card)) for _, number, of_card, of_host in rows]


if __name__ == "__main__":
    main(sys.argv[1:])

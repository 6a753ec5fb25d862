"""What the helpers of dryfit.train save, rehearsed: `python benchmarks/train.py [--gpu l4] [NAME ...]`.

Prints the table of docs/train.md: each loop of train_loops.py as it is, and with the helper. A loop that is too big for
the card shows what it takes without a limit.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from dryfit.rehearse.result import Result
from dryfit.rehearse.warm import WarmRehearsals, warm_rehearsals
from dryfit.units import format_bytes

LOOPS = str(Path(__file__).parent / "train_loops.py")
ROWS = {
    "accumulate": "`accumulate`, 4 micro-batches of 2",
    "checkpoint_blocks": "`checkpoint_blocks`",
    "checkpoint_blocks-keep-matmuls": '`checkpoint_blocks(keep="matmuls")`',
    "two_pass": "`two_pass`, 256 pairs of texts, 32 at a time",
    "evaluation": "`evaluation`, against `model.eval()` alone",
    "to_device": "`to_device`, batches of 48 MiB",
    "micro_batched": "`micro_batched`, a batch of 64",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loops", nargs="*", default=[*ROWS], metavar="NAME", help=f"of {', '.join(ROWS)}")
    parser.add_argument("--gpu", default="l4")
    arguments = parser.parse_args()

    print("| helper | plain: allocated / reserved | with it | saved |")
    print("| --- | --- | --- | --- |")
    with warm_rehearsals([LOOPS], quiet=True, figures_only=True) as rehearse_one:
        for name in arguments.loops:
            print(row(rehearse_one, name, arguments.gpu), flush=True)


def row(rehearse_one: WarmRehearsals, name: str, gpu: str) -> str:
    plain = rehearsed(rehearse_one, [name], gpu)
    title = ROWS[name]
    if plain.out_of_memory is not None:
        plain = rehearsed(rehearse_one, [name], None)
        title += f", which does not fit; ends at {size_at_the_end(name, gpu)}"
    helped = rehearsed(rehearse_one, [name, "--with"], gpu)
    saved = [
        change(plain.peak_allocated_bytes, helped.peak_allocated_bytes),
        change(plain.peak_reserved_bytes, helped.peak_reserved_bytes),
    ]
    return f"| {title} | {figures(plain)} | {figures(helped)} | {' / '.join(saved)} |"


def rehearsed(rehearse_one: WarmRehearsals, words: list[str], gpu: str | None) -> Result:
    result = rehearse_one([LOOPS, *words], gpu=gpu)
    if result.ending.how not in ("steady", "finished", "out of memory"):
        raise SystemExit(f"{' '.join(words)}: {result.ending.sentence}")
    return result


def size_at_the_end(name: str, gpu: str) -> str:
    """What the program prints, when it is run to its end."""
    command = [sys.executable, "-m", "dryfit", "run", "--gpu", gpu, "--steps", "all", "--json", LOOPS, name, "--with"]
    done = subprocess.run(command, capture_output=True, text=True)
    json.loads(done.stdout)  # or it was no rehearsal
    return next(line for line in done.stderr.splitlines() if line.startswith("micro-batches of"))


def figures(result: Result) -> str:
    return f"{format_bytes(result.peak_allocated_bytes)} / {format_bytes(result.peak_reserved_bytes)}"


def change(plain: int, helped: int) -> str:
    of_plain = f"{100 * abs(plain - helped) / plain:.0f} %"
    return f"{format_bytes(abs(plain - helped))} ({of_plain}{' more' if helped > plain else ''})"


if __name__ == "__main__":
    main()

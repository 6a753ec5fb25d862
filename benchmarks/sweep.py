"""What a sweep of 200 cells costs, and what its warm cells do: `python benchmarks/sweep.py [--jobs 2] [--cells 200]`.

The program is tiny, so that what is measured is dryfit's own. Beside it stand a rehearsal of its own, which imports
torch, and what the same cells take one after the other from one warm process without a sweep.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import dryfit
from dryfit.rehearse.warm import warm_rehearsals

PROGRAM = """
import sys
import torch

model = torch.nn.Linear(1024, 1024, device="cuda")
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(torch.empty(int(sys.argv[1]), 1024, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
CARD, STEPS = "a100-80gb", 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--cells", type=int, default=200)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("train.py").write_text(PROGRAM)
        began = time.monotonic()
        dryfit.run(["train.py", "1"], gpu=CARD, steps=STEPS, quiet=True, figures_only=True)
        print(f"one rehearsal of its own         {time.monotonic() - began:6.2f} s")
        alone = []
        with warm_rehearsals(["train.py", "1"], gpu=CARD, steps=STEPS, quiet=True, figures_only=True) as rehearse_one:
            for batch in range(1, 22):
                began = time.monotonic()
                rehearse_one(["train.py", str(batch)])
                alone.append(time.monotonic() - began)
        print(f"a warm one, without a sweep      {statistics.median(alone[1:]):6.2f} s")
        values = {
            "program": ["train.py", "{batch}"],
            "grid": {"batch": list(range(1, arguments.cells + 1)), "gpu": CARD},
            "options": {"steps": STEPS},
        }
        found = dryfit.sweep(values, jobs=arguments.jobs, rows="rows.jsonl")
        assert found.failed == 0
        seconds = sorted(row.outcome.seconds for row in found.rows)
        cells, workers = len(found.rows), arguments.jobs
        print(f"a sweep of {cells} by {workers} workers       {found.wall_seconds:6.2f} s")
        print(f"  its first cells, with imports  {seconds[-workers]:6.2f} s")
        print(f"  its warm cells, median         {statistics.median(seconds[:-workers]):6.2f} s")
        between = (found.wall_seconds * workers - sum(seconds)) / cells
        print(f"  a worker's time beside them    {between:6.2f} s a cell")
        again = dryfit.sweep(values, jobs=arguments.jobs, rows="rows.jsonl")
        print(f"the same again, from its rows    {again.wall_seconds:6.2f} s")


if __name__ == "__main__":
    main()

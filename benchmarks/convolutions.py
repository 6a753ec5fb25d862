"""What cuDNN's answers cost a rehearsal of ResNet-50: `python benchmarks/convolutions.py [--repeat 3] [--benchmark]`.

Prints the median time of whole processes: with nobody to ask, with an empty file of answers, and with a full one.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAM = """
import sys, torch, torchvision
torch.backends.cudnn.benchmark = "benchmark" in sys.argv
model = torchvision.models.resnet50().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for _ in range(3):
    model(torch.empty(32, 3, 224, 224, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
# As with a cuDNN that is too old: no answers, and nobody to ask.
NOBODY_TO_ASK = """
import dataclasses, sys
from dryfit.rehearse import child
from dryfit.virtual_card.cudnn import Oracle
child.oracle_for = lambda *_: Oracle()
from dryfit.cli import main
sys.exit(main())
"""


def seconds_of(words: list[str], cache: str) -> float:
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, *words], env=os.environ | {"XDG_CACHE_HOME": cache}, check=True, capture_output=True
    )
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--benchmark", action="store_true", help="with torch.backends.cudnn.benchmark")
    given = parser.parse_args()
    times: dict[str, list[float]] = {"nobody to ask": [], "first": [], "second": []}
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "train.py"
        program.write_text(PROGRAM)
        words = ["run", "--gpu", "a100-80gb", "--steps", "all", str(program)]
        words += ["benchmark"] if given.benchmark else []
        for number in range(given.repeat):
            cache = f"{folder}/cache-{number}"
            times["nobody to ask"].append(seconds_of(["-c", NOBODY_TO_ASK, *words], cache))
            times["first"].append(seconds_of(["-m", "dryfit", *words], cache))
            times["second"].append(seconds_of(["-m", "dryfit", *words], cache))
    for name, found in times.items():
        print(f"{name:<16} {statistics.median(found):6.2f} s")


if __name__ == "__main__":
    main()

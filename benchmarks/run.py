"""How long a rehearsal takes, as medians of several whole processes: `python benchmarks/run.py [--repeat 5]`.

Prints one line per claim of the README:

    dryfit --help, import dryfit          the front door
    GPT-2 example                         `dryfit run` of it, against the import time of its own imports
    70B-sized model                       three steps, beyond imports
    a step                                with hooks and recording, with values too, against the bare virtual step
    recording                             its events and size, and `dryfit report` of it
    fit                                   `dryfit fit` of the GPT-2 example for an RTX 3090, against its imports
    warm                                  a further rehearsal of the GPT-2 example, beside a cold one
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from dryfit.recording.file import load
from dryfit.rehearse.launch import rehearse
from dryfit.rehearse.warm import warm_rehearsals
from dryfit.units import format_bytes

EXAMPLES = Path(__file__).parents[1] / "examples"
CARD = ("--gpu", "a100-80gb")


def median_seconds(measure: Callable[[], float], repeat: int) -> float:
    return statistics.median(measure() for _ in range(repeat))


def process_seconds(*words: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
    return time.perf_counter() - began


def rehearsal(*words: str) -> dict[str, object]:
    done = subprocess.run([sys.executable, "-m", "dryfit", "run", "--json", *words], check=True, capture_output=True)
    result: dict[str, object] = json.loads(done.stdout)
    return result


def recording_size(*words: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.dryfit"
        rehearsal("--record", str(path), *words)
        events = sum(len(trace.events) for trace in load(path).devices)
        seconds = process_seconds("-m", "dryfit", "report", str(path))
        return f"{events:,} events, {format_bytes(path.stat().st_size)}, reported on in {seconds:.2f} s"


def step_milliseconds(prelude: str, example: str, *arguments: str) -> float:
    """The median time of steps 3 and later of an example, timed by itself inside the process."""
    code = f"{prelude}\nimport runpy, sys, time, torch\n" + _TIMED.format(
        path=str(EXAMPLES / example), argv=list(arguments)
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    found = re.search(r"median step ([\d.]+) ms", done.stderr)
    assert found, done.stderr
    return float(found[1])


_TIMED = """
times = []
real = torch.optim.AdamW.step
def step(self, *args, **kwargs):
    out = real(self, *args, **kwargs)
    times.append(time.perf_counter())
    return out
torch.optim.AdamW.step = step
sys.argv = [{path!r}, *{argv!r}]
runpy.run_path({path!r}, run_name="__main__")
import statistics
gaps = [b - a for a, b in zip(times[2:], times[3:])]
print(f"median step {{1000 * statistics.median(gaps):.2f}} ms", file=sys.stderr)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args().repeat

    bare = median_seconds(lambda: process_seconds("-c", "pass"), repeat)
    front_door = median_seconds(lambda: process_seconds("-c", "import dryfit"), repeat) - bare
    command_help = median_seconds(lambda: process_seconds("-m", "dryfit", "--help"), repeat)
    print(f"bare Python                      {1000 * bare:8.0f} ms")
    print(f"import dryfit                    {1000 * front_door:8.0f} ms beyond it")
    print(f"dryfit --help                    {1000 * command_help:8.0f} ms")

    imports = median_seconds(lambda: process_seconds("-c", "import torch"), repeat)
    gpt2 = median_seconds(lambda: process_seconds("-m", "dryfit", "run", *CARD, str(EXAMPLES / "gpt2.py")), repeat)
    print(f"import torch                     {imports:8.2f} s")
    print(f"dryfit run examples/gpt2.py      {gpt2:8.2f} s, {gpt2 - imports:.2f} s beyond its import")

    llama_imports = "import torch, transformers; from transformers import LlamaConfig, LlamaForCausalLM"
    imports = median_seconds(lambda: process_seconds("-c", llama_imports), repeat)
    words = ("--gpu", "h100", "--memory", "2000GB", "--steps", "3", str(EXAMPLES / "llama_70b.py"))
    llama = median_seconds(lambda: process_seconds("-m", "dryfit", "run", *words), repeat)
    print(f"import transformers' Llama       {imports:8.2f} s")
    print(f"three steps of the 70B model     {llama:8.2f} s, {llama - imports:.2f} s beyond its imports")

    preludes = {
        "bare": VIRTUAL,
        "hooks and recording": HOOKS.format(values=False),
        "values too": HOOKS.format(values=True),
    }
    for example, arguments in (("gpt2.py", ("--steps", "30")), ("llama_70b.py", ("--size", "8b", "--steps", "12"))):
        times = {}
        for name, prelude in preludes.items():
            measure = functools.partial(step_milliseconds, prelude, example, *arguments)
            times[name] = median_seconds(measure, max(1, repeat // 2))
        print(f"one step of {example:<20} {', '.join(f'{name} {time:.1f} ms' for name, time in times.items())}", end="")
        print(f": {times['values too'] / times['bare']:.2f} x")

    for run in ((*CARD, str(EXAMPLES / "gpt2.py")), words):
        print(f"recording of {Path(run[-1]).name:<19} {recording_size(*run)}")

    imports = median_seconds(lambda: process_seconds("-c", "import torch, torch._dynamo"), repeat)
    search = ("fit", "--gpu", "rtx-3090", "--no-cache", str(EXAMPLES / "gpt2.py"), "--batch", "{batch}")
    fit = median_seconds(lambda: process_seconds("-m", "dryfit", *search), repeat)
    print(f"import torch, torch._dynamo      {imports:8.2f} s, which any optimizer of torch's does")
    print(f"dryfit fit examples/gpt2.py      {fit:8.2f} s, {fit - imports:.2f} s beyond its imports")

    cold, warm = cold_and_warm_seconds(str(EXAMPLES / "gpt2.py"), max(3, repeat))
    print(f"a rehearsal of gpt2.py           {1000 * cold:8.0f} ms cold, {1000 * warm:.0f} ms warm")


def cold_and_warm_seconds(example: str, repeat: int) -> tuple[float, float]:
    """Median times of a rehearsal as a search runs it: in a new process, and from a process with the imports done."""
    options = {"gpu": CARD[1], "quiet": True, "figures_only": True}

    def seconds_of(rehearse_one: Callable[..., object]) -> float:
        began = time.perf_counter()
        rehearse_one([example], **options)
        return time.perf_counter() - began

    cold = median_seconds(lambda: seconds_of(rehearse), repeat)
    with warm_rehearsals([example]) as rehearse_one:
        seconds_of(rehearse_one)  # teaches it what to import
        seconds_of(rehearse_one)  # waits for those imports
        return cold, median_seconds(lambda: seconds_of(rehearse_one), repeat)


VIRTUAL = "import dryfit; dryfit.virtual('h100', memory_bytes=2 * 10**12)"
# The hooks in an interpreter of its own, as a rehearsed process has them.
HOOKS = """
import os, tempfile, dryfit
dryfit.virtual('h100', memory_bytes=2 * 10**12)
from dryfit.rehearse.events import ORDERS_VARIABLE, Orders
os.environ[ORDERS_VARIABLE] = Orders(folder=tempfile.mkdtemp(), steps=0, values={values}).to_text()
from dryfit.rehearse.inside import bootstrap
bootstrap.start()
"""

if __name__ == "__main__":
    main()

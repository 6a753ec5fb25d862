"""What `dryfit.watch` adds to a step: of a loop on the CPU whose steps take a few milliseconds.

    python benchmarks/watch.py              # the figures of the README: milliseconds a step, without and with
    python benchmarks/watch.py --rounds 40

Rounds without and with the watch take turns, so that another load of the machine falls on both. Told is the median of
the rounds' differences, in seconds that the process ran (`time.process_time`, one thread) and on the clock. The first
five steps of a watch look at all Python objects and are told apart: they come once.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from dryfit.watching.watch import watch

_FIRST = 6


def main() -> None:
    """Measure, and print a line for each clock."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="pairs of rounds (20)")
    parser.add_argument("--steps", type=int, default=60, help="steps of a round (60)")
    parser.add_argument("--layers", type=int, default=8, help="layers of the model (8)")
    parser.add_argument(
        "--transformers", action="store_true", help="with as many objects in memory as that library makes"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.transformers:
        import transformers.models.llama.modeling_llama  # noqa: F401
    model, optimizer = _model(options.layers)
    _seconds(model, optimizer, 20)
    without: list[tuple[float, float]] = []
    with_it: list[tuple[float, float]] = []
    first = 0.0
    for _ in range(options.rounds):
        without.append(_seconds(model, optimizer, options.steps))
        with watch(model, optimizer) as watching:
            began = time.process_time()
            _seconds(model, optimizer, _FIRST)
            first = time.process_time() - began
            with_it.append(_seconds(model, optimizer, options.steps))
        assert not watching.failure, watching.failure
    for place, clock in enumerate(("process", "wall clock")):
        plain = statistics.median(each[place] for each in without)
        added = statistics.median(late[place] - early[place] for early, late in zip(without, with_it, strict=True))
        print(
            f"{clock:<11} {1000 * plain:.3f} ms a step without, {1000 * added:+.3f} ms with the watch, "
            f"{100 * added / plain:+.2f} %"
        )
    print(f"once        {1000 * first:.0f} ms for the first {_FIRST} steps with the watch")


def _model(layers: int) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    parts = [part for _ in range(layers) for part in (torch.nn.Linear(256, 256), torch.nn.GELU())]
    model = torch.nn.Sequential(*parts, torch.nn.Linear(256, 10))
    return model, torch.optim.AdamW(model.parameters())


def _seconds(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> tuple[float, float]:
    """What a step takes: seconds of the process, and on the clock."""
    inputs, targets = torch.randn(64, 256), torch.randint(10, (64,))
    process, clock = time.process_time(), time.monotonic()
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    return (time.process_time() - process) / steps, (time.monotonic() - clock) / steps


if __name__ == "__main__":
    main()

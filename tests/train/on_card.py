"""What the small helpers do on a virtual card of 2 GiB: run once, in a process of its own that this module starts."""

from __future__ import annotations

import functools
import gc
import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

MIB = 1 << 20
CARD = "sm=80,sms=108,memory=2GiB"
WIDTH, ROWS = 1024, 1 << 18


@functools.cache
def found_on_card() -> dict[str, Any]:
    """What each case below has found, by its name."""
    done = subprocess.run([sys.executable, "-m", "tests.train.on_card"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


ROOT = Path(__file__).parents[2]


def main() -> None:
    import dryfit

    dryfit.virtual(CARD)
    print(json.dumps({case.__name__: case() for case in (peaks, out_of_memory, releases, to_the_device, evaluations)}))


def peaks() -> dict[str, Any]:
    import torch

    from dryfit.train.peaks import peak_memory

    before = str(peak_memory())
    with peak_memory() as first:  # before anything has initialised CUDA
        first_tensor = torch.zeros(8 * MIB, dtype=torch.uint8, device="cuda")
    with peak_memory() as outer:
        torch.zeros(256 * MIB, dtype=torch.uint8, device="cuda")
        with peak_memory() as middle:
            with peak_memory() as inner:
                torch.zeros(32 * MIB, dtype=torch.uint8, device="cuda")
            torch.zeros(64 * MIB, dtype=torch.uint8, device="cuda")
            so_far = middle.allocated_bytes
        torch.cuda.empty_cache()
    torch.zeros(512 * MIB, dtype=torch.uint8, device="cuda")
    blocks = {"first": first, "outer": outer, "middle": middle, "inner": inner}
    return {
        **{name: [block.allocated_bytes, block.reserved_bytes] for name, block in blocks.items()},
        "so far": so_far,
        "text": str(outer),
        "before": before,
        "since": peak_memory().allocated_bytes,
        "held": first_tensor.nbytes,
    }


def out_of_memory() -> dict[str, Any]:
    import torch
    from torch import nn

    from dryfit.train.micro_batching import micro_batched

    model = nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(4)]).to("cuda")
    found: dict[str, Any] = {"caught within except": _retried_within_except(model)}
    held_before: list[int] = []
    sizes: list[int] = []

    def step(batch: torch.Tensor) -> torch.Tensor:
        held_before.append(torch.cuda.memory_allocated())
        sizes.append(len(batch))
        return model(torch.randn(len(batch), WIDTH, device="cuda")).mean()

    optimizer = torch.optim.SGD(model.parameters())
    train_on = micro_batched(step, model)
    for _ in range(2):
        with warnings.catch_warnings(record=True):
            train_on(torch.zeros(ROWS))
        optimizer.step()
        optimizer.zero_grad()
    failed = sizes.index(train_on.micro_batch)
    found |= {
        "sizes": sizes,
        "held at the failed ones": held_before[:failed],
        "held then": held_before[failed],
        "micro_batch": train_on.micro_batch,
        "activations of it": 8 * train_on.micro_batch * WIDTH * 4,
    }
    kept: list[torch.Tensor] = []

    def keeping_step(batch: torch.Tensor) -> torch.Tensor:
        if len(batch) == ROWS:
            kept.append(torch.empty(256 * MIB, dtype=torch.uint8, device="cuda"))
        return step(batch)

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        micro_batched(keeping_step, model)(torch.zeros(ROWS))
    kept.clear()
    huge = micro_batched(lambda batch: model(torch.randn(ROWS * len(batch), WIDTH, device="cuda")).mean(), model)
    try:
        huge(torch.zeros(4))
    except torch.OutOfMemoryError as error:
        found["note"] = "\n".join([str(error), *getattr(error, "__notes__", [])])
    return {**found, "told": [str(each.message) for each in told]}


def _retried_within_except(model: Any) -> int:
    import torch

    before = torch.cuda.memory_allocated()
    try:
        model(torch.randn(ROWS, WIDTH, device="cuda")).mean().backward()
    except torch.OutOfMemoryError:
        gc.collect()
        torch.cuda.empty_cache()
        return torch.cuda.memory_allocated() - before
    return 0


def releases() -> dict[str, Any]:
    import torch
    from torch import nn

    from dryfit.train.releasing import release

    release()
    layer = nn.Linear(WIDTH, WIDTH, bias=False).to("cuda")
    layer(torch.zeros(8, WIDTH, device="cuda")).sum().backward()
    output = layer(torch.zeros(4096, WIDTH, device="cuda")).relu()
    loss = layer(output.relu()).sum()
    cycle: list[Any] = [torch.zeros(64 * MIB, dtype=torch.uint8, device="cuda")]
    cycle.append(cycle)
    del cycle, output
    kept = torch.zeros(2, 16 * MIB, dtype=torch.uint8, device="cuda")
    views = [kept[0], kept[1]]
    sys.last_value = RuntimeError()
    (first,) = release()
    del loss, kept, views, sys.last_value
    (second,) = release()
    return {
        "first": str(first),
        "second": str(second),
        "held": [[each.what, each.size_bytes, each.count, each.largest] for each in first.held],
        "freed": first.before.allocated_bytes - first.after.allocated_bytes,
        "hidden": [first.hidden_bytes, second.hidden_bytes],
        "reserved": [first.before.reserved_bytes, first.after.reserved_bytes],
    }


def to_the_device() -> dict[str, Any]:
    import torch
    from torch.nn.utils.rnn import pack_sequence

    from dryfit.train.devices import to_device

    before = torch.cuda.memory_allocated()

    def held_with(prefetch: int) -> list[int]:
        held = []
        loader = ({"of": [torch.zeros(4 * MIB, dtype=torch.uint8)]} for _ in range(5))
        for batch in to_device(loader, "cuda", prefetch=prefetch):
            assert batch["of"][0].is_cuda
            held.append(torch.cuda.memory_allocated() - before)
        return held

    streams: list[Any] = []
    recorded = torch.Tensor.record_stream
    torch.Tensor.record_stream = lambda self, stream: streams.append([self.nbytes, stream == working])
    working = torch.cuda.Stream()
    with torch.cuda.stream(working):
        mixed = [torch.zeros(4), torch.tensor(1.0), pack_sequence([torch.zeros(3)]), torch.zeros(5, device="cuda"), "a"]
        (batch,) = to_device([mixed], 0, prefetch=1)
    torch.Tensor.record_stream = recorded
    return {
        "held": {prefetch: held_with(prefetch) for prefetch in (0, 1, 2)},
        "left": torch.cuda.memory_allocated() - before - sum(each.nbytes for each in batch[:2]),
        "moved": [str(each.device) for each in batch[:2]],
        "packed": [str(batch[2].data.device), str(batch[2].batch_sizes.device)],
        "as it was": [batch[3] is mixed[3], batch[4]],
        "recorded": streams,
    }


def evaluations() -> dict[str, Any]:
    import torch
    from torch import nn

    from dryfit.train.evaluating import evaluation

    model = nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(4)]).to("cuda")
    inputs = torch.zeros(4096, WIDTH, device="cuda")
    model(inputs)
    before = torch.cuda.memory_allocated()
    output = model(inputs)
    with_graph = torch.cuda.memory_allocated() - before
    del output
    with evaluation(model):
        output = model(inputs)
        without = torch.cuda.memory_allocated() - before
    return {"with a graph": with_graph, "without": without, "output": output.nbytes}


if __name__ == "__main__":
    main()

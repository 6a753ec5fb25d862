"""What collectives keep until NCCL's watchdog looks: DDP's first buckets, and what a card may hold of them."""

from __future__ import annotations

import json

from tests.rehearse.conftest import Rehearse

RANKS, PARAMETERS, PARAMETER_BYTES = 8, 8, 4 << 20
WEIGHTS_BYTES = PARAMETERS * PARAMETER_BYTES
SCRATCH_BYTES = 4 * WEIGHTS_BYTES

# Its peak is in the forward pass, where DDP, before any collective of the step, has made its buckets anew (step 2).
# Pauses of different lengths have the watchdog look at different moments of a step.
PROGRAM = f"""
    import json, os, sys, time
    import torch, torch.distributed as dist
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            weight = lambda: torch.nn.Parameter(torch.zeros({PARAMETER_BYTES} // 4))
            self.weights = torch.nn.ParameterList(weight() for _ in range({PARAMETERS}))

        def forward(self):
            torch.empty({SCRATCH_BYTES}, dtype=torch.uint8, device="cuda")
            return [weight.sum() for weight in self.weights]

    def peaks(make_optimizer, seconds):
        model = DistributedDataParallel(Model().cuda())
        optimizer = make_optimizer(model.parameters())
        found = []
        for _ in range(4):
            torch.cuda.reset_peak_memory_stats()
            time.sleep(seconds)
            losses = model()
            found.append(torch.cuda.max_memory_allocated())
            torch.autograd.backward(losses)
            del losses
            optimizer.step()
            optimizer.zero_grad()
        return found

    def momentum(parameters):
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)

    def shared_out(parameters):
        return ZeroRedundancyOptimizer(parameters, optimizer_class=torch.optim.SGD, lr=0.1, momentum=0.9)

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    found = [[peaks(make, seconds / 1000) for seconds in (0, 25, 50, 75)] for make in (momentum, shared_out)]
    print("found", json.dumps(found))
"""


def test_the_first_buckets_are_gone_when_ddp_makes_the_second_at_every_run(rehearse: Rehearse) -> None:
    done = rehearse(PROGRAM, options=("--world", str(RANKS), "--steps", "all"))
    assert done.code == 0, done.stderr
    line = next(line for line in done.stderr.splitlines() if line.startswith("found "))
    plain, shared_out = json.loads(line.removeprefix("found "))
    buckets_bytes = WEIGHTS_BYTES
    first_bytes = WEIGHTS_BYTES + buckets_bytes + SCRATCH_BYTES
    # Momentum is as large as the weights, or, shared out by whole parameters, as large as one of them here.
    assert plain == [[first_bytes, *3 * [first_bytes + WEIGHTS_BYTES]]] * 4
    assert shared_out == [[first_bytes, *3 * [first_bytes + PARAMETER_BYTES]]] * 4
    # What waiting for the watchdog hides: on a card that begins the second step at once, the first buckets are there.
    (part,) = [part for part in done.result["total_parts"] if part["what"] == "DDP's first buckets"]
    assert (part["low_bytes"], part["expected_bytes"], part["high_bytes"]) == (0, 0, buckets_bytes)
    (note,) = [note for note in done.result["notes"] if note.startswith("DDP makes")]
    assert note == (
        "DDP makes its buckets anew in step 2. A card that begins this step within 100 ms of the last all-reduce still "
        "holds the first ones (32.00 MiB) until it reduces again: the peak may be up to 32.00 MiB higher."
    )

"""DeepSpeed's ZeRO, one rank played alone, against the arithmetic of its own partitioning. Figures are of 0.19.8."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.rehearse.conftest import Rehearse, Rehearsed

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("deepspeed") is None, reason="DeepSpeed is not installed: pip install deepspeed"
)

EXAMPLE = Path(__file__).parents[3] / "examples" / "distributed" / "deepspeed_zero.py"
WORLD, BATCH = 8, 16
# The example's eight layers of 2048 x 2048.
LAYERS, WIDTH = 8, 2048
WEIGHT, LAYER = WIDTH * WIDTH, (WIDTH + 1) * WIDTH
ELEMENTS = LAYERS * LAYER
BUCKET = 1 << 23  # elements, as the example asks for
WORKSPACE_BYTES = 8_519_680  # cuBLAS's on sm 8.0: one for the thread of forward, one for that of backward
HALF, SINGLE, DOUBLE = 2, 4, 8
SMALLEST_BYTES = 512  # what PyTorch's allocator gives for less

LAYERS_OF_UNEVEN, WIDTH_OF_UNEVEN = 7, 1001
UNEVEN = ("--layers", str(LAYERS_OF_UNEVEN), "--width", str(WIDTH_OF_UNEVEN))


def as_rank(rehearse: Rehearse, rank: str, *arguments: str, world: int = WORLD) -> Rehearsed:
    done = rehearse(EXAMPLE, *arguments, options=("--world", str(world), "--ranks", rank, "--steps", "all"))
    assert done.code == 0, done.stderr
    return done


def asked_for(done: Rehearsed, owner: str) -> list[int]:
    """The bytes that an owner's tensors asked for at the peak, largest first."""
    return sorted(
        (each["requested_bytes"] for each in tensors_of(done) if each["owner"] == owner and each["size_bytes"] > 4096),
        reverse=True,
    )


def tensors_of(done: Rehearsed) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = done.result["footprint"]["tensors"]
    return found


def test_every_byte_of_zero_2_at_its_peak(rehearse: Rehearse) -> None:
    """On rank 0 that is where DeepSpeed takes the norm of the gradients, each cast to float64."""
    done = as_rank(rehearse, "0", "--stage", "2")
    shard = ELEMENTS // WORLD
    assert Counter((each["owner"], each["size_bytes"]) for each in tensors_of(done)) == {
        ("parameter", ELEMENTS * HALF): 1,  # all of them, flattened
        ("parameter", shard * SINGLE): 1,  # this rank's master copy
        ("optimizer state", shard * SINGLE): 2,
        ("gradient", shard * HALF): 1,
        ("temporary", WEIGHT * DOUBLE): 1,
        ("temporary", 3584): 1,  # the norm's partial sums, and its steps to a number
        ("temporary", SMALLEST_BYTES): 2,
        ("workspace", WORKSPACE_BYTES): 2,
        ("input", BATCH * WIDTH * HALF): 1,
        ("communication buffer", SMALLEST_BYTES): 1,  # the norm of all ranks
    }
    assert done.result["peak_phase"] == "after backward"
    assert done.result["phase_peaks"]["setup"] == 2 * ELEMENTS * HALF  # as it was, and flattened
    # Reduced in buckets, of which each takes one layer, for two are more; only the owner keeps what was reduced.
    sent = done.result["communication"]
    assert sent["all-reduce"]["payload_bytes"] == ELEMENTS * HALF + SINGLE + 1  # and the norm, and whether it is finite
    assert sent["all-gather"] == {
        "calls": 1,
        "payload_bytes": ELEMENTS * HALF,
        "sent_bytes": ELEMENTS * HALF * (WORLD - 1) // WORLD,
    }
    assert [each["what"] for each in done.result["unknowns"] if each["decides_size"]] == []


def test_shards_are_padded_to_be_equal_and_a_master_copy_is_single(rehearse: Rehearse) -> None:
    """DeepSpeed pads what it flattens to twice the ranks: its allgather begins at multiples of 4 bytes."""
    done = as_rank(rehearse, "0,last", "--stage", "1", "--dtype", "fp16", *UNEVEN)
    elements = LAYERS_OF_UNEVEN * (WIDTH_OF_UNEVEN + 1) * WIDTH_OF_UNEVEN
    padded = -(-elements // (2 * WORLD)) * 2 * WORLD
    assert padded > elements
    assert asked_for(done, "parameter") == [padded * HALF, padded // WORLD * SINGLE]
    assert asked_for(done, "optimizer state") == [padded // WORLD * SINGLE] * 2
    first, last = done.result["ranks"]
    assert (first["rank"], last["rank"]) == (0, WORLD - 1)
    assert first["peak_allocated_bytes"] == last["peak_allocated_bytes"]


def test_zero_3_shares_each_parameter_out_on_every_rank(rehearse: Rehearse) -> None:
    """A rank other than 0 compares its modules with those of rank 0, which is not there."""
    done = as_rank(rehearse, "last", "--stage", "3", "--adam", "deepspeed", *UNEVEN)
    weight, bias = WIDTH_OF_UNEVEN**2, WIDTH_OF_UNEVEN
    shard = LAYERS_OF_UNEVEN * (-(-weight // WORLD) + -(-bias // WORLD))
    assert asked_for(done, "parameter") == [shard * SINGLE, shard * HALF]
    assert asked_for(done, "optimizer state") == [shard * SINGLE] * 2
    # What gradients are gathered in, as large as was asked for, and this rank's shard of them.
    assert asked_for(done, "gradient") == [BUCKET * HALF]
    assert shard * HALF in asked_for(done, "communication buffer")
    # Weights are gathered ahead until they have 2**22 elements, as the example asks for: five, and then the other two.
    # Each comes with its padding, from where it is copied out.
    gathered = WORLD * -(-weight // WORLD) * HALF
    assert asked_for(done, "communication buffer")[:2] == [5 * gathered, 2 * gathered]
    assert asked_for(done, "communication buffer").count(weight * HALF) == 5
    # Biases are smaller than `stage3_param_persistence_threshold` and stay whole.
    whole = [each for each in tensors_of(done) if each["name"].endswith(".bias")]
    assert [each["requested_bytes"] for each in whole] == [WORLD * -(-bias // WORLD) * HALF] * LAYERS_OF_UNEVEN
    assert done.result["world"] == {"size": WORLD, "nodes": 1, "rank": WORLD - 1}


def test_what_is_offloaded_is_not_on_the_card(rehearse: Rehearse) -> None:
    states = as_rank(rehearse, "0", "--stage", "2", "--offload", "optimizer", "--adam", "deepspeed")
    assert asked_for(states, "parameter") == [ELEMENTS * HALF]
    assert asked_for(states, "optimizer state") == []
    assert states.result["steps"] == 6  # none was skipped: what is not known is finite
    everything = as_rank(rehearse, "last", "--stage", "3", "--offload", "all", "--dtype", "fp16")
    assert asked_for(everything, "parameter") == []
    assert asked_for(everything, "optimizer state") == []


def test_deepspeeds_launcher_starts_the_rank_alone_and_nothing_it_writes_stays(
    rehearse: Rehearse, project: Path
) -> None:
    """Checkpoints, the files of its monitors and profiler, and extensions that it compiles."""
    home = project.parent / "home"
    home.mkdir()
    rehearse("")  # to have the folder
    (project / "train.py").write_text(WRITES)
    command = ["deepspeed", "--num_gpus", "4", "train.py"]
    done = rehearse(command, options=("--world", "4", "--rank", "3", "--steps", "all"), environment={"HOME": str(home)})
    assert done.code == 0, done.stderr
    assert "rank 3 of 4 on card 3, told --local_rank=3" in done.stderr
    assert len([process for process in done.result["processes"] if process["peak_used_bytes"]]) == 1
    kept = ("bf16_zero_pp_rank_3_mp_rank_00_optim_states.pt", "zero_pp_rank_3_mp_rank_00_model_states.pt")
    assert f"kept {' '.join(kept)}" in done.stderr
    assert sorted(path.name for path in project.iterdir()) == ["train.py"]
    assert {path.name for path in home.glob(".cache/*")} <= {"dryfit"}


WRITES = """
import sys
from pathlib import Path
import deepspeed, torch
from torch.utils.cpp_extension import get_default_build_root

model = torch.nn.Linear(64, 64)
config = {
    "train_micro_batch_size_per_gpu": 1,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"torch_adam": True}},
    "zero_optimization": {"stage": 3},
    "csv_monitor": {"enabled": True, "output_path": "monitored"},
    "tensorboard": {"enabled": True, "output_path": "monitored"},
    "flops_profiler": {"enabled": True, "profile_step": 1, "output_file": "flops.txt"},
}
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
rank, world, card = torch.distributed.get_rank(), torch.distributed.get_world_size(), torch.cuda.current_device()
print(f"rank {rank} of {world} on card {card}, told", *sys.argv[1:], file=sys.stderr)
for _ in range(2):
    engine.backward(engine(torch.ones(1, 64, device="cuda", dtype=torch.bfloat16)).sum())
    engine.step()
engine.save_checkpoint("kept", tag="last")
print("kept", *sorted(path.name for path in Path("kept/last").iterdir()), file=sys.stderr)
compiled = Path(get_default_build_root()) / "cpu_adam"
compiled.mkdir(parents=True)
(compiled / "cpu_adam.so").touch()
"""


def test_real_ranks_take_what_a_rank_alone_takes(rehearse: Rehearse) -> None:
    command = ["-m", "torch.distributed.run", "--nproc-per-node", "2", str(EXAMPLE), "--stage", "3", *UNEVEN]
    real = rehearse(command, options=("--steps", "all"))
    assert real.code == 0, real.stderr
    alone = as_rank(rehearse, "1", "--stage", "3", *UNEVEN, world=2)
    peaks = [process["peak_allocated_bytes"] for process in real.result["processes"] if process["peak_used_bytes"]]
    assert peaks == [alone.result["peak_allocated_bytes"]] * 2


def test_deepspeeds_estimators_know_states_alone() -> None:
    """What docs/distributed.md says of them: 16-bit weights, and 18 bytes for each parameter of a shard."""
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs
    from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs

    _, zero_2_bytes = estimate_zero2_model_states_mem_needs(ELEMENTS, WORLD, 1, False)
    assert zero_2_bytes == ELEMENTS * HALF + 18 * ELEMENTS // WORLD == 142_675_968
    _, zero_3_bytes, _ = estimate_zero3_model_states_mem_needs(ELEMENTS, LAYER, WORLD, 1, False, False)
    assert zero_3_bytes == 2 * LAYER * HALF + 18 * ELEMENTS // WORLD == 92_319_744

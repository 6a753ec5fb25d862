"""Trainer, Accelerate, Lightning and TRL on many cards: what each rank holds and sends, against the arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.rehearse.conftest import Rehearse, Rehearsed

from dryfit.analyse import Footprint
from dryfit.recording.model import (
    COMMUNICATION,
    FORWARD,
    GRADIENT,
    OPTIMIZER_STATE,
    OPTIMIZER_STEP,
    PARAMETER,
)

EXAMPLES = Path(__file__).parents[3] / "examples"
PROGRAMS = EXAMPLES / "distributed"
STEP_BYTES = 512  # an optimizer counts each tensor's steps in one number, which on the card takes a block

pytestmark = pytest.mark.stacks


def held(done: Rehearsed, phase: str = OPTIMIZER_STEP) -> dict[str, int]:
    """Bytes by owner at the peak of a phase of the second step, which they sum to."""
    footprint = Footprint.from_dict(done.result["footprint"])
    step = next(step for step in footprint.steps if step.step == 2)
    peak = next(each for each in step.phases if each.phase == phase)
    sizes = {owner.owner: owner.size_bytes for owner in peak.owners}
    assert sum(sizes.values()) == peak.peak_allocated_bytes
    return sizes


def passed(done: Rehearsed, kind: str) -> tuple[int, int]:
    """How many collectives of one kind a step calls, and their payload in bytes."""
    found = done.result["communication"][kind]
    return found["calls"], found["payload_bytes"]


def world_of(size: int, nodes: int = 1, rank: int = 0) -> dict[str, int]:
    return {"size": size, "nodes": nodes, "rank": rank}


def took_the_card(done: Rehearsed) -> int:
    return len([process for process in done.result["processes"] if process["peak_used_bytes"]])


# --- Trainer: the Llama of examples/distributed/trainer.py ---------------------------------------------------------

RANKS, VOCABULARY, WIDTH, INNER, LAYERS = 8, 4096, 1024, 4096, 4
# In the order of a layer's flat parameter: q, k, v, o; gate, up, down; two norms.
OF_LAYER = (*4 * [WIDTH * WIDTH], *3 * [WIDTH * INNER], WIDTH, WIDTH)
OF_ROOT = (VOCABULARY * WIDTH, WIDTH, VOCABULARY * WIDTH)  # embedding, norm, head
LLAMA_BYTES = 4 * (LAYERS * sum(OF_LAYER) + sum(OF_ROOT))
LLAMA_TENSORS = LAYERS * len(OF_LAYER) + len(OF_ROOT)
COUNTED_BYTES = RANKS * 8  # what each rank says of the tokens in a batch, gathered once a step


def pieces_of_rank_0(sizes: Sequence[int]) -> int:
    """How many parameters have a piece in the first rank's shard of the flat parameter that they make."""
    begins = [sum(sizes[:at]) for at in range(len(sizes))]
    return sum(begin < sum(sizes) // RANKS for begin in begins)


def test_trainer_under_ddp_holds_all_and_under_fsdp2_its_shards(rehearse: Rehearse) -> None:
    options, words = ("--world", str(RANKS)), ("--accumulate", "2")
    launch = ["torchrun", "--nproc-per-node", str(RANKS)]
    ddp = rehearse([*launch, str(PROGRAMS / "trainer.py"), "ddp"], *words, options=options)
    assert ddp.code == 0, ddp.stderr
    assert ddp.result["world"] == world_of(RANKS)
    assert took_the_card(ddp) == 1
    of_ddp = held(ddp)
    assert of_ddp[PARAMETER] == of_ddp[GRADIENT] == LLAMA_BYTES
    assert of_ddp[OPTIMIZER_STATE] == 2 * LLAMA_BYTES + LLAMA_TENSORS * STEP_BYTES
    # The buckets; the flags of used parameters, since Trainer has DDP look for unused ones; the rotary tables' copy.
    assert of_ddp[COMMUNICATION] == LLAMA_BYTES + 512 + 512
    # All gradients are reduced once for the two micro-batches, with those flags.
    assert passed(ddp, "all-reduce")[1] == LLAMA_BYTES + 4 * LLAMA_TENSORS

    fsdp2 = rehearse([str(PROGRAMS / "trainer.py"), "fsdp2"], *words, options=options)
    assert fsdp2.code == 0, fsdp2.stderr
    of_fsdp2 = held(fsdp2)
    assert of_fsdp2[PARAMETER] == of_fsdp2[GRADIENT] == LLAMA_BYTES // RANKS
    assert of_fsdp2[OPTIMIZER_STATE] == 2 * LLAMA_BYTES // RANKS + LLAMA_TENSORS * STEP_BYTES
    assert held(fsdp2, FORWARD)[GRADIENT] == LLAMA_BYTES  # of the micro-batch before, not reduced
    assert passed(fsdp2, "reduce-scatter")[1] == LLAMA_BYTES
    # What is left when the optimizer steps differs by seven eighths of four tensors for each parameter, by the buckets
    # and those two small ones, and by the block of a number, the loss, that Trainer keeps.
    peaks = [each.result["phase_peaks"][OPTIMIZER_STEP] for each in (ddp, fsdp2)]
    assert peaks[0] - peaks[1] == 4 * LLAMA_BYTES * (RANKS - 1) // RANKS + LLAMA_BYTES + 512 + 512 - 512


def test_trainer_under_fsdp1_holds_its_part_of_flat_parameters(rehearse: Rehearse) -> None:
    done = rehearse([str(PROGRAMS / "trainer.py"), "fsdp"], options=("--world", str(RANKS)))
    assert done.code == 0, done.stderr
    pieces = LAYERS * pieces_of_rank_0(OF_LAYER) + pieces_of_rank_0(OF_ROOT)
    sizes = held(done)
    assert sizes[PARAMETER] == sizes[GRADIENT] == LLAMA_BYTES // RANKS
    assert sizes[OPTIMIZER_STATE] == 2 * LLAMA_BYTES // RANKS + pieces * STEP_BYTES
    assert passed(done, "reduce-scatter") == (LAYERS + 1, LLAMA_BYTES)
    # The layers are gathered for the forward and for the backward pass, the root stays whole between.
    gathered = 2 * LLAMA_BYTES - 4 * sum(OF_ROOT)
    assert passed(done, "all-gather") == (2 * LAYERS + 1 + 1, gathered + COUNTED_BYTES)


def test_trl_with_adapters_reduces_them_alone(rehearse: Rehearse) -> None:
    command = ["torchrun", "--nproc-per-node", str(RANKS), str(EXAMPLES / "sft.py"), "--lora"]
    done = rehearse(command, options=("--world", str(RANKS)))
    assert done.code == 0, done.stderr
    rank, layers, width, inner = 16, 8, 512, 1408
    attention, mlp = 4 * (width + width), 3 * (width + inner)
    adapters_bytes, adapters = 4 * rank * layers * (attention + mlp), layers * 2 * 7
    sizes = held(done)
    assert sizes[GRADIENT] == adapters_bytes
    assert sizes[OPTIMIZER_STATE] == 2 * adapters_bytes + adapters * STEP_BYTES
    assert passed(done, "all-reduce")[1] == adapters_bytes + 4 * adapters


# --- Accelerate ----------------------------------------------------------------------------------------------------


def test_accelerate_shards_as_its_file_says_and_the_last_rank_has_fewer_rows(rehearse: Rehearse) -> None:
    launch = ["accelerate", "launch", "--config_file", str(PROGRAMS / "accelerate_fsdp.yaml")]
    done = rehearse([*launch, str(PROGRAMS / "accelerate_fsdp.py")], options=("--world", "8", "--ranks", "last"))
    assert done.code == 0, done.stderr
    assert done.result["world"] == world_of(8, rank=7)
    assert took_the_card(done) == 1
    assert not [note for note in done.result["notes"] if "was to start" in note]
    vocabulary, width, blocks = 8190, 1024, 8
    blocks_bytes = blocks * 4 * (2 * 4 * width * width + 4 * width + width) // 8
    rows = -(-vocabulary // 8)  # of the embedding, on every rank but the last
    sizes = held(done)
    # The last rank's parameter and gradient are padded to the others' size, and its states are not.
    assert sizes[PARAMETER] == sizes[GRADIENT] == blocks_bytes + 4 * width * rows
    assert sizes[OPTIMIZER_STATE] == 2 * (blocks_bytes + 4 * width * (vocabulary - 7 * rows))
    # `accumulate` reduces once for both micro-batches, which gather each block twice and the embedding once.
    embedding_bytes = 8 * 4 * width * rows
    assert passed(done, "reduce-scatter") == (blocks + 1, 8 * blocks_bytes + embedding_bytes)
    assert passed(done, "all-gather") == (2 * (2 * blocks + 1), 2 * (2 * 8 * blocks_bytes + embedding_bytes))


def test_a_notebooks_launcher_starts_one_process_and_says_that_it_was_to_start_others(rehearse: Rehearse) -> None:
    program = """
        import os
        import torch
        from accelerate import Accelerator, notebook_launcher

        def train():
            accelerator = Accelerator()
            model = accelerator.prepare(torch.nn.Linear(1024, 1024))
            model(torch.randn(8, 1024, device=accelerator.device)).sum().backward()
            print("I am", accelerator.process_index, "of", accelerator.num_processes, "on", accelerator.device)

        notebook_launcher(train, num_processes=4)
    """
    done = rehearse(program, options=("--world", "16", "--ranks", "last"))
    assert done.code == 0, done.stderr
    assert "I am 15 of 16 on cuda:7" in done.stderr
    assert took_the_card(done) == 1
    note = (
        "train.py was to start 4 ranks on 1 machine, and what is rehearsed is one of 16 ranks on 2 machines, as "
        "--world says. For what train.py was to start, write --world 4."
    )
    assert note in done.result["notes"]


def test_torchs_launcher_of_functions_starts_a_new_interpreter_as_the_rank(rehearse: Rehearse) -> None:
    program = """
        import os
        import torch, torch.distributed as dist
        from torch.distributed.launcher.api import LaunchConfig, elastic_launch

        def train(width):
            dist.init_process_group("nccl")
            torch.zeros(width, device=f"cuda:{os.environ['LOCAL_RANK']}")
            return f"I am {dist.get_rank()} of {dist.get_world_size()}"

        if __name__ == "__main__":
            four = LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=4, start_method="spawn")
            print(elastic_launch(four, train)(1 << 20))
    """
    done = rehearse(program, options=("--world", "4", "--rank", "3"))
    assert done.code == 0, done.stderr
    assert "{0: 'I am 3 of 4'}" in done.stderr  # what the launcher gives for its one process
    assert took_the_card(done) == 1


def test_spawn_starts_one_process_whose_own_words_count(rehearse: Rehearse) -> None:
    program = """
        import torch, torch.distributed as dist, torch.multiprocessing

        def train(index, size):
            dist.init_process_group("nccl", init_method="tcp://127.0.0.1:29511", rank=index, world_size=size)
            torch.zeros(1 << 20, device=f"cuda:{index}")
            print("I am", dist.get_rank(), "of", dist.get_world_size())

        if __name__ == "__main__":
            torch.multiprocessing.spawn(train, args=(4,), nprocs=4)
    """
    done = rehearse(program, options=("--world", "8", "--rank", "3"))
    assert done.code == 0, done.stderr
    assert "I am 3 of 4" in done.stderr
    assert took_the_card(done) == 1
    note = "The program made itself rank 3 of 4, and the figures are of that, where rank 3 of 8 was asked for."
    assert note in done.result["notes"]


# --- Lightning: the layers of examples/distributed/lightning_strategies.py -----------------------------------------

STACK_BYTES = 8 * (2048 + 1) * 2048 * 4


def lightning(rehearse: Rehearse, *words: str, size: int = 8, rank: str = "0") -> Rehearsed:
    program = str(PROGRAMS / "lightning_strategies.py")
    done = rehearse([program, *words], options=("--world", str(size), "--rank", rank))
    assert done.code == 0, done.stderr
    assert took_the_card(done) == 1
    return done


def whole(sizes: dict[str, int]) -> list[int]:
    return [sizes[owner] for owner in (PARAMETER, GRADIENT, OPTIMIZER_STATE)]


def test_lightning_under_ddp_starts_nobody(rehearse: Rehearse) -> None:
    done = lightning(rehearse, "ddp", "--nodes", "2", size=16, rank="last")
    assert done.result["world"] == world_of(16, nodes=2, rank=15)
    assert "GLOBAL_RANK: 15, MEMBER: 16/16" in done.stderr
    # Lightning's optimizer step begins with the forward and backward pass, so gradients are those of the step before.
    sizes = held(done)
    assert whole(sizes) == [STACK_BYTES, STACK_BYTES, 2 * STACK_BYTES]
    assert sizes[COMMUNICATION] == STACK_BYTES
    assert passed(done, "all-reduce")[1] == STACK_BYTES


def test_lightning_accumulates_whole_gradients_under_fsdp1_and_shards_under_fsdp2(rehearse: Rehearse) -> None:
    first: dict[str, Any] = {}
    for strategy in ("fsdp", "fsdp2"):
        first[strategy] = lightning(rehearse, strategy, "--accumulate", "4")
    shard_bytes = STACK_BYTES // 8
    assert whole(held(first["fsdp"])) == [shard_bytes, STACK_BYTES, 2 * shard_bytes]
    assert whole(held(first["fsdp2"])) == [shard_bytes, shard_bytes, 2 * shard_bytes]
    assert passed(first["fsdp"], "reduce-scatter") == (8, STACK_BYTES)
    assert passed(first["fsdp2"], "reduce-scatter") == (4 * 8, 4 * STACK_BYTES)
    assert passed(first["fsdp"], "all-gather") == passed(first["fsdp2"], "all-gather") == (64, 8 * STACK_BYTES)

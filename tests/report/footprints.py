"""Footprints to report on: GPT-2 small as examples/gpt2.py trains it, by its arithmetic, and one that knows little."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from dataclasses import dataclass
from math import prod

from dryfit.analyse.footprint import (
    Cached,
    FailedRequest,
    Footprint,
    Growth,
    LineBytes,
    ModuleBytes,
    Number,
    OwnerBytes,
    OwnerChange,
    Peak,
    PhasePeak,
    Recipe,
    StepFootprint,
    TensorBytes,
)
from dryfit.recording.model import OWNERS

MIB = 1 << 20
LAYERS, WIDTH, LENGTH, VOCABULARY = 12, 768, 1024, 50304
FILE = "/home/me/gpt2.py"
ITEM_BYTES = {"float32": 4, "bfloat16": 2, "int64": 8}


@dataclass(frozen=True, kw_only=True)
class Held:
    """One allocation at the peak, and how often there is one like it."""

    owner: str
    module: str
    kind: str
    line: int
    shape: tuple[int, ...]
    dtype: str = "float32"
    name: str = ""
    blocks: int = 1

    @property
    def size_bytes(self) -> int:
        return prod(self.shape) * ITEM_BYTES[self.dtype]


def _held(batch: int) -> list[Held]:
    rows = (batch, LENGTH, WIDTH)
    held = [
        *_weights("tokens", "Embedding", (VOCABULARY, WIDTH)),
        *_weights("positions", "Embedding", (LENGTH, WIDTH)),
        Held(owner="gradient", module="tokens", kind="Embedding", line=67, shape=(VOCABULARY, WIDTH), name="tokens"),
        Held(owner="input", module="", kind="GPT2", line=62, shape=(batch, LENGTH + 1), dtype="int64"),
        Held(owner="saved activation", module="", kind="GPT2", line=41, shape=rows),
        Held(owner="saved activation", module="norm", kind="LayerNorm", line=44, shape=rows),
        Held(owner="temporary", module="head", kind="Linear", line=45, shape=(batch * LENGTH, VOCABULARY)),
        Held(owner="saved activation", module="head", kind="Linear", line=45, shape=(batch * LENGTH, VOCABULARY)),
        Held(owner="workspace", module="", kind="GPT2", line=44, shape=(8519680 // 4,)),
        Held(owner="unknown", module="", kind="", line=0, shape=(128,), blocks=3),
    ]
    for layer in range(LAYERS):
        path = f"blocks.{layer}"
        held += [
            *_weights(f"{path}.qkv", "Linear", (3 * WIDTH, WIDTH)),
            *_weights(f"{path}.up", "Linear", (4 * WIDTH, WIDTH)),
            _of_autocast("autocast weight copy", f"{path}.qkv", "Linear", 24, (3 * WIDTH, WIDTH)),
            Held(owner="saved activation", module=f"{path}.norm_1", kind="LayerNorm", line=24, shape=rows),
            _of_autocast("saved activation", f"{path}.qkv", "Linear", 24, (batch, LENGTH, 3 * WIDTH)),
            _of_autocast("saved activation", path, "Block", 27, rows),
            _of_autocast("saved activation", f"{path}.up", "Linear", 28, (batch, LENGTH, 4 * WIDTH)),
            _of_autocast("saved activation", path, "Block", 28, (batch, LENGTH, 4 * WIDTH)),
        ]
    return held


def _of_autocast(owner: str, module: str, kind: str, line: int, shape: tuple[int, ...]) -> Held:
    return Held(owner=owner, module=module, kind=kind, line=line, shape=shape, dtype="bfloat16")


def _weights(path: str, kind: str, shape: tuple[int, ...]) -> list[Held]:
    name = f"{path}.weight"
    return [
        Held(owner="parameter", module=path, kind=kind, line=56, shape=shape, name=name),
        Held(owner="optimizer state", module=path, kind=kind, line=69, shape=shape, name=f"exp_avg of {name}"),
        Held(owner="optimizer state", module=path, kind=kind, line=69, shape=shape, name=f"exp_avg_sq of {name}"),
    ]


_FUNCTIONS = {24: "forward", 27: "forward", 28: "forward", 41: "forward", 44: "forward", 45: "forward"}
_FIXED = ("parameter", "gradient", "optimizer state", "autocast weight copy", "workspace", "unknown")


def owners_of(held: list[Held]) -> tuple[OwnerBytes, ...]:
    """What each owner holds, in the order of `OWNERS`."""
    return tuple(
        OwnerBytes(
            owner=owner,
            size_bytes=sum(one.size_bytes * one.blocks for one in held if one.owner == owner),
            blocks=sum(one.blocks for one in held if one.owner == owner),
        )
        for owner in OWNERS
        if any(one.owner == owner for one in held)
    )


def _modules(held: list[Held], path: str = "") -> ModuleBytes:
    inside = [one for one in held if not path or one.module == path or one.module.startswith(f"{path}.")]
    own = [one for one in inside if one.module == path]
    start = len(path) + 1 if path else 0
    names = dict.fromkeys(one.module[start:].split(".")[0] for one in inside if one.module != path)
    children = [_modules(held, f"{path}.{name}" if path else name) for name in names]
    return ModuleBytes(
        path=path,
        kind="ModuleList" if path == "blocks" else next((one.kind for one in own), "Block"),
        size_bytes=sum(one.size_bytes * one.blocks for one in inside),
        own_bytes=sum(one.size_bytes * one.blocks for one in own),
        owners=owners_of(inside),
        children=tuple(sorted(children, key=lambda child: -child.size_bytes)),
    )


def _lines(held: list[Held], moved_by: int) -> tuple[LineBytes, ...]:
    by_line: dict[int, list[Held]] = defaultdict(list)
    for one in held:
        by_line[one.line].append(one)
    lines = [
        LineBytes(
            file=FILE if line else "",
            line=line + moved_by if line else 0,
            function=_FUNCTIONS.get(line, "main") if line else "",
            size_bytes=sum(one.size_bytes * one.blocks for one in those),
            blocks=sum(one.blocks for one in those),
            owners=owners_of(those),
        )
        for line, those in by_line.items()
    ]
    return tuple(sorted(lines, key=lambda line: -line.size_bytes))


def _tensors(held: list[Held], moved_by: int) -> tuple[TensorBytes, ...]:
    largest = sorted(held, key=lambda one: -one.size_bytes)[:60]
    return tuple(
        TensorBytes(
            index=index,
            owner=one.owner,
            size_bytes=one.size_bytes,
            requested_bytes=one.size_bytes,
            name=one.name,
            dtype=one.dtype,
            shape=one.shape,
            module=one.module,
            file=FILE,
            line=one.line + moved_by,
            begin="step 2, forward" if one.owner == "saved activation" else "setup",
            end="step 2, backward" if one.owner == "saved activation" else "",
        )
        for index, one in enumerate(largest)
    )


def gpt2(batch: int = 8, moved_by: int = 0) -> Footprint:
    """GPT-2 small at the peak of its second step; its source lines may stand `moved_by` lines further down."""
    held = _held(batch)
    owners = owners_of(held)
    total = sum(owner.size_bytes for owner in owners)
    fixed = sum(owner.size_bytes for owner in owners if owner.owner in _FIXED)
    reserved = (total // (2 * MIB) + 60) * 2 * MIB
    peak = Peak(
        event=9000,
        step=2,
        phase="backward",
        allocated_bytes=total,
        active_bytes=total,
        requested_bytes=total - 1000,
        reserved_bytes=reserved,
        owners=owners,
        fixed_bytes=fixed,
        grows_with_batch_bytes=total - fixed,
        logits_and_loss_bytes=2 * batch * LENGTH * VOCABULARY * 4,
    )
    without_states = tuple(owner for owner in owners if owner.owner != "optimizer state")
    first_total = sum(owner.size_bytes for owner in without_states)
    first = dataclasses.replace(peak, step=1, event=3000, allocated_bytes=first_total, owners=without_states)
    parameters = next(owner for owner in owners if owner.owner == "parameter")
    states = next(owner for owner in owners if owner.owner == "optimizer state")
    at_rest = parameters.size_bytes + states.size_bytes
    phases = tuple(
        PhasePeak(phase=phase, peak_allocated_bytes=size, peak_reserved_bytes=reserved, owners=owners)
        for phase, size in (
            ("forward", total - 400 * MIB),
            ("backward", total),
            ("optimizer step", at_rest + 500 * MIB),
            ("after the step", at_rest + 490 * MIB),
        )
    )
    setup = dataclasses.replace(
        peak, step=0, event=200, phase="setup", allocated_bytes=parameters.size_bytes, reserved_bytes=530 * MIB,
        owners=(parameters,),
    )  # fmt: skip
    steps = [
        StepFootprint(step=0, peak=setup, phases=(), end_allocated_bytes=parameters.size_bytes),
        StepFootprint(step=1, peak=first, phases=phases, end_allocated_bytes=at_rest),
    ]
    for step in (2, 3, 4):
        again = dataclasses.replace(peak, step=step, event=9000 + 6000 * (step - 2))
        steps.append(StepFootprint(step=step, peak=again, phases=phases, end_allocated_bytes=at_rest))
    cached = reserved - total
    return Footprint(
        source="rehearsal",
        device=0,
        about={"program": ["gpt2.py", "--batch", str(batch)], "card": {"name": "NVIDIA GeForce RTX 4090"}},
        peak=peak,
        peak_reserved_bytes=reserved,
        modules=_modules(held),
        lines=_lines(held, moved_by),
        tensors=_tensors(held, moved_by),
        steps=tuple(steps),
        first_against_steady=(
            OwnerChange(owner="parameter", before_bytes=parameters.size_bytes, after_bytes=parameters.size_bytes),
            OwnerChange(owner="optimizer state", before_bytes=0, after_bytes=states.size_bytes),
        ),
        growth=None,
        cached=Cached(
            event=9000,
            reserved_bytes=reserved,
            allocated_bytes=total,
            cached_bytes=cached,
            whole_segments_bytes=40 * MIB,
            split_bytes=cached - 40 * MIB,
            largest_hole_bytes=20 * MIB,
            largest_request_bytes=1572 * MIB,
            sentence="No free block is large enough for the largest request; the cache is no waste.",
        ),
        numbers=(
            Number(name="requested by tensors", size_bytes=total - 1000, why="what tensors asked for"),
            Number(name="allocated", size_bytes=total, why="requests rounded up to 512 bytes"),
            Number(name="reserved", size_bytes=reserved, why="blocks that are kept for the next request"),
            Number(name="nvidia-smi", size_bytes=reserved + 460 * MIB, why="the CUDA context, outside PyTorch"),
        ),
        out_of_memory=None,
        recipe=Recipe(
            parameters=sum(prod(one.shape) for one in held if one.owner == "parameter"),
            parts=(parameters, dataclasses.replace(parameters, owner="gradient"), states),
            size_bytes=2 * parameters.size_bytes + states.size_bytes,
            sentence="4.00 parameter + 4.00 gradient + 8.00 optimizer state = 16.00 bytes for each of 88.6 M "
            "parameters, each part when it is largest.",
        ),
        notes=("3 allocations are not attributed.",),
    )


def out_of_memory() -> Footprint:
    """The same program on a card that it does not fit."""
    oom = FailedRequest(
        event=9001,
        step=2,
        phase="backward",
        requested_bytes=1572 * MIB,
        free_bytes=300 * MIB,
        allocated_bytes=22000 * MIB,
        reserved_bytes=23500 * MIB,
        holes_bytes=900 * MIB,
        largest_hole_bytes=700 * MIB,
        sentence="The request that failed needs 1.54 GiB in one piece.",
    )
    return dataclasses.replace(gpt2(), out_of_memory=oom)


def growing() -> Footprint:
    """The same program when it keeps a tensor from step to step."""
    growth = Growth(
        first_step=2,
        last_step=4,
        bytes_per_step=10 * MIB,
        owners=(OwnerChange(owner="unknown", before_bytes=0, after_bytes=20 * MIB),),
        sentence="Each step keeps 10.00 MiB more than the one before.",
    )
    return dataclasses.replace(gpt2(), growth=growth)


def bare_snapshot() -> Footprint:
    """A snapshot of a real card without stacks and steps: only sizes are known."""
    owners = (OwnerBytes(owner="unknown", size_bytes=700 * MIB, blocks=9),)
    peak = Peak(
        event=-1,
        step=0,
        phase="",
        allocated_bytes=700 * MIB,
        active_bytes=700 * MIB,
        requested_bytes=700 * MIB,
        reserved_bytes=800 * MIB,
        owners=owners,
        fixed_bytes=700 * MIB,
        grows_with_batch_bytes=0,
        logits_and_loss_bytes=0,
    )
    full = gpt2()
    return dataclasses.replace(
        full,
        source="snapshot",
        recipe=None,
        about={},
        peak=peak,
        peak_reserved_bytes=800 * MIB,
        modules=ModuleBytes(path="", kind="", size_bytes=0, own_bytes=0),
        lines=(),
        tensors=(),
        steps=(),
        first_against_steady=(),
        cached=dataclasses.replace(full.cached, sentence=""),
        numbers=(),
        notes=(),
    )

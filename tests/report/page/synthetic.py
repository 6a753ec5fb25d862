"""A plausible training run of a GPT, as a recording of about as many events as asked for, with all its owners known.

Parameters first, then steps of micro-batches: activations stack up in forward and come down in backward, gradients
come with the first backward, AdamW's states with the first optimizer step. Every micro-batch has its own length, so
that sizes repeat only in part, as with texts.
"""

from __future__ import annotations

import random
from array import array
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from math import ceil

from dryfit.analyse.analysis import Analysis
from dryfit.analyse.attribution import Attribution
from dryfit.analyse.stack_facts import facts_of
from dryfit.analyse.summary import footprint_of
from dryfit.recording import model
from dryfit.recording.model import DeviceTrace, Events, Label, Mark, ModuleOutput, Recording
from dryfit.recording.replay import replay
from dryfit.recording.stacks import MODULE_FILE, Frame, Stacks

KIB, MIB = 1 << 10, 1 << 20
FILE = "/home/me/gpt/train.py"
WIDTH, VOCABULARY, STEPS = 768, 50304, 3
# A layer's forward pass: name, line, floats per token, and whether backward needs it.
_FORWARD = (
    ("ln_1", 20, 1, True), ("ln_1", 20, 0.003, True), ("attn.qkv", 22, 3, True), ("attn", 23, 1, False),
    ("attn", 24, 1, True), ("attn", 24, 0.02, True), ("attn.proj", 25, 1, False), ("attn", 25, 1, True),
    ("ln_2", 27, 1, True), ("ln_2", 27, 0.003, True), ("mlp.fc", 28, 4, True), ("mlp", 29, 4, False),
    ("mlp", 29, 4, True), ("mlp.proj", 30, 1, False), ("mlp", 30, 1, True),
)  # fmt: skip
_PARAMETERS = (
    ("ln_1.weight", 1), ("attn.qkv.weight", 3 * WIDTH), ("attn.proj.weight", WIDTH), ("ln_2.weight", 1),
    ("mlp.fc.weight", 4 * WIDTH), ("mlp.proj.weight", 4 * WIDTH),
)  # fmt: skip
# What one layer's forward and backward come to with `_noise` temporaries each, in allocations.
_SAVED = sum(is_saved for _, _, _, is_saved in _FORWARD)
_OF_A_LAYER = len(_FORWARD) + _SAVED


def training(
    events: int = 3000, *, layers: int = 6, micro_batches: int = 2, seed: int = 0, names: str = ""
) -> Analysis:
    """The analysis of a run of about so many events. `names` is put into every name there is, to see it be inert."""
    run = _Run(random.Random(seed), layers, names)
    each = events / 3 / STEPS / micro_batches / layers
    run.noise = max(0, ceil((each - _OF_A_LAYER) / 4)) * 2  # half of it in forward, half in backward, in pairs
    run.train(micro_batches)
    return run.analysis()


@dataclass
class _Run:
    random: random.Random
    layers: int
    names: str
    noise: int = 0
    events: Events = field(default_factory=Events)
    stacks: Stacks = field(default_factory=Stacks)
    marks: list[Mark] = field(default_factory=list)
    owner_of: dict[int, tuple[int, str, int, bool]] = field(default_factory=dict)
    """By event: owner, module, line, and whether it is of logits and loss."""
    labels: dict[int, Label] = field(default_factory=dict)
    held: dict[int, tuple[int, int]] = field(default_factory=dict)
    time: int = 0

    def __post_init__(self) -> None:
        self.memory = _Memory(self)

    def train(self, micro_batches: int) -> None:
        self.mark(0, model.SETUP)
        shapes = {"wte.weight": (VOCABULARY, WIDTH), "wpe.weight": (1024, WIDTH)}
        for layer in range(self.layers):
            shapes |= {f"h.{layer}.{name}": (rows, WIDTH) for name, rows in _PARAMETERS}
        shapes["ln_f.weight"] = (1, WIDTH)
        for name, shape in shapes.items():
            self.tensor(model.PARAMETER, name, shape, 60)
        self.alloc(model.BUFFER, "rope", 61, 4 * MIB)
        grads: list[int] = []
        for step in range(1, STEPS + 1):
            self.mark(step, model.DATA)
            for gradient in grads:
                self.free(gradient)
            grads = []
            for _ in range(micro_batches):
                tokens = self.random.randrange(900, 1024) * 4
                self.mark(step, model.DATA)
                batch = self.alloc(model.INPUT, "", 70, tokens * 8)
                loss = self.forward(step, tokens)
                self.backward(step, tokens, loss, grads, shapes)
                self.free(batch)
            self.mark(step, model.OPTIMIZER_STEP)
            for name, shape in shapes.items():
                if step == 1:
                    self.tensor(model.OPTIMIZER_STATE, name, shape, 76, "exp_avg of ")
                    self.tensor(model.OPTIMIZER_STATE, name, shape, 76, "exp_avg_sq of ")
                self.free(self.alloc(model.TEMPORARY, "", 76, shape[0] * shape[1] * 4))

    def forward(self, step: int, tokens: int) -> list[int]:
        self.mark(step, model.FORWARD)
        saved = [self.alloc(model.ACTIVATION, "wte", 40, tokens * WIDTH * 4)]
        for layer in range(self.layers):
            for name, line, floats, is_saved in _FORWARD:
                size, path = int(tokens * WIDTH * 4 * floats), f"h.{layer}.{name}"
                if is_saved:
                    saved.append(self.alloc(model.ACTIVATION, path, line, size))
                else:
                    self.free(self.alloc(model.TEMPORARY, path, line, size))
            self.make_noise(f"h.{layer}.mlp")
        self.mark(step, model.LOSS)
        logits = self.alloc(model.ACTIVATION, "lm_head", 45, tokens * VOCABULARY * 4, is_output=True)
        self.free(self.alloc(model.TEMPORARY, "lm_head", 46, tokens * VOCABULARY * 4, is_output=True))
        return [*saved, logits]

    def backward(
        self, step: int, tokens: int, saved: list[int], grads: list[int], shapes: dict[str, tuple[int, int]]
    ) -> None:
        self.mark(step, model.BACKWARD)
        self.free(self.alloc(model.WORKSPACE, "", 0, 8 * MIB + 512))
        self.free(self.alloc(model.TEMPORARY, "lm_head", 46, tokens * VOCABULARY * 4, is_output=True))
        is_first = not grads
        for place, event in enumerate(reversed(saved)):
            _, path, line, _ = self.owner_of[event]
            upstream = self.alloc(model.TEMPORARY, path, line, self.held[event][1])
            if is_first and path.startswith("h.") and line in (22, 28):
                layer = ".".join(path.split(".")[:2])
                for name in shapes:
                    if name.startswith(f"{layer}.") and (".attn" in name) == (line == 22):
                        grads.append(self.tensor(model.GRADIENT, name, shapes[name], line))
            self.free(event)
            self.free(upstream)
            if place % _SAVED == 0:
                self.make_noise(path)
        if is_first:
            grads += [
                self.tensor(model.GRADIENT, name, shapes[name], 40)
                for name in ("wte.weight", "wpe.weight", "ln_f.weight")
            ]

    def make_noise(self, path: str) -> None:
        """Small temporaries, freed in pairs."""
        for _ in range(self.noise // 2):
            pair = [self.alloc(model.TEMPORARY, path, 31, 512 << self.random.randrange(12)) for _ in range(2)]
            for event in pair:
                self.free(event)

    def tensor(self, owner: str, name: str, shape: tuple[int, int], line: int, prefix: str = "") -> int:
        event = self.alloc(owner, name.rpartition(".")[0], line, shape[0] * shape[1] * 4)
        self.labels[event] = Label(event, owner, f"{prefix}{name}{self.names}", "float32", shape)
        return event

    def alloc(self, owner: str, path: str, line: int, size: int, is_output: bool = False) -> int:
        frames = [Frame(f"{FILE}{self.names}", f"forward{self.names}", line), Frame(FILE, "main", 80)]
        if path:
            frames.insert(1, Frame(MODULE_FILE, f"{path}{self.names}", 0))
        stack = self.stacks.add(frames)
        address = self.memory.take(size, stack)
        event = self.add(model.ALLOC, address, size, stack)
        self.owner_of[event] = model.OWNERS.index(owner), path, line, is_output
        self.held[event] = address, size
        return event

    def free(self, event: int) -> None:
        address, size = self.held.pop(event)
        self.add(model.FREE_REQUESTED, address, size, 0)
        self.add(model.FREE_COMPLETED, address, size, 0)
        self.memory.give_back(address)

    def mark(self, step: int, phase: str) -> None:
        self.marks.append(Mark(len(self.events), step, phase))

    def add(self, kind: int, address: int, size: int, stack: int) -> int:
        events = self.events
        self.time += self.random.randrange(1, 40)
        values = (kind, address, size, 0, 0, stack, self.time)
        columns = (events.kind, events.address, events.size, events.stream, events.pool, events.stack, events.time_us)
        for column, value in zip(columns, values, strict=True):
            column.append(value)
        return len(events) - 1

    def analysis(self) -> Analysis:
        paths = sorted({path for _, path, _, _ in self.owner_of.values()} | {""})
        lines = sorted({line for _, _, line, _ in self.owner_of.values()} | {0})
        trace = DeviceTrace(
            device=0, events=self.events, marks=tuple(self.marks), labels=tuple(self.labels.values()), starts_empty=True
        )
        replayed = replay(trace)
        found = [self.owner_of[event] for event in replayed.lifetimes.begin]
        attribution = Attribution(
            owner=array("B", [owner for owner, _, _, _ in found]),
            module=array("I", [paths.index(path) for _, path, _, _ in found]),
            modules=tuple(f"{path}{self.names}" if path else "" for path in paths),
            line=array("I", [lines.index(line) for _, _, line, _ in found]),
            lines=tuple(
                (f"{FILE}{self.names}", line, f"forward{self.names}") if line else ("", 0, "") for line in lines
            ),
            is_logits_or_loss=bytearray(is_output for _, _, _, is_output in found),
            tensor={
                place: self.labels[event]
                for place, event in enumerate(replayed.lifetimes.begin)
                if event in self.labels
            },
        )
        recording = Recording(
            source="rehearsal",
            devices=(trace,),
            stacks=self.stacks,
            modules=tuple(ModuleOutput(f"h.{layer}{self.names}", "Block") for layer in range(self.layers)),
            about={
                "program": ["train.py", "--batch-size", f"4{self.names}"],
                "card": {
                    "key": "a-card",
                    "name": f"NVIDIA A10G{self.names}",
                    "total_bytes": 8 << 30,
                    "usable_bytes": 7 << 30,
                },
                "versions": {"torch": "2.14.1", "python": "3.12.4"},
            },
        )
        return Analysis(
            recording=recording, trace=trace, replay=replayed, attribution=attribution,
            footprint=footprint_of(recording, trace, replayed, attribution, facts_of(recording.stacks)),
        )  # fmt: skip


class _Memory:
    """A caching allocator in PyTorch's manner: segments of 2 MiB, 20 MiB or their own size; best fit, split, merged."""

    def __init__(self, run: _Run) -> None:
        self.run = run
        self.next = 0x7F0000000000
        self.free: tuple[list[tuple[int, int]], ...] = ([], [])  # of each pool: size and address
        self.blocks: dict[int, list[int]] = {}  # by address: size, the address before, the one after, pool, is it free

    def take(self, size: int, stack: int) -> int:
        size = -(-size // 512) * 512
        pool = 0 if size <= MIB else 1
        free = self.free[pool]
        place = bisect_left(free, (size, 0))
        if place == len(free):
            self.segment(
                2 * MIB if not pool else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB, pool, stack
            )
            place = bisect_left(free, (size, 0))
        whole, address = free.pop(place)
        block = self.blocks[address]
        block[4] = 0
        if whole - size >= (512 if not pool else MIB + 1):
            block[0] = size
            rest = address + size
            self.blocks[rest] = [whole - size, address, block[2], pool, 1]
            if block[2]:
                self.blocks[block[2]][1] = rest
            block[2] = rest
            insort(free, (whole - size, rest))
        return address

    def give_back(self, address: int) -> None:
        size, before, after, pool, _ = self.blocks[address]
        free = self.free[pool]
        if after and self.blocks[after][4]:
            other = self.blocks.pop(after)
            free.pop(bisect_left(free, (other[0], after)))
            size, after = size + other[0], other[2]
        if before and self.blocks[before][4]:
            other = self.blocks[before]
            del self.blocks[address]
            free.pop(bisect_left(free, (other[0], before)))
            address, size, before = before, size + other[0], other[1]
        self.blocks[address] = [size, before, after, pool, 1]
        if after:
            self.blocks[after][1] = address
        insort(free, (size, address))

    def segment(self, size: int, pool: int, stack: int) -> None:
        address, self.next = self.next, self.next + size + 2 * MIB
        self.run.add(model.SEGMENT_ALLOC, address, size, stack)
        self.blocks[address] = [size, 0, 0, pool, 1]
        insort(self.free[pool], (size, address))

"""A caching allocator as plainly as it can be written: what the replay has to find out again from its events."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dryfit.recording import model
from dryfit.recording.model import Block, DeviceTrace, Events, Segment

KIB, MIB = 1 << 10, 1 << 20
ALLOCATED, AWAITING, FREE = "active_allocated", "active_awaiting_free", "inactive"
STREAM = 0


@dataclass
class Piece:
    address: int
    size: int
    requested: int = 0
    state: str = FREE


@dataclass
class Memory:
    address: int
    size: int
    is_small: bool
    pieces: list[Piece]


@dataclass
class Allocator:
    """One stream's; `figures` are allocated, active and reserved bytes after each event."""

    max_split_bytes: int = 1 << 64
    divisions: int = 0
    is_expandable: bool = False
    events: Events = field(default_factory=Events)
    figures: list[tuple[int, int, int]] = field(default_factory=list)
    memories: list[Memory] = field(default_factory=list)
    next_address: int = 0x7F0000000000

    def alloc(self, requested: int) -> Piece:
        size = self.rounded(requested)
        is_small = size <= MIB
        fitting = [
            (piece.size, piece.address, memory, piece)
            for memory in self.memories
            for piece in memory.pieces
            if memory.is_small == is_small and piece.state == FREE and self.fits(piece.size, size)
        ]
        if fitting:
            *_, memory, piece = min(fitting, key=lambda found: found[:2])
        else:
            memory = self.mapped(size, is_small) if self.is_expandable else self.new_segment(size, is_small)
            piece = memory.pieces[-1]
        left = piece.size - size
        splits = left >= 512 if is_small or self.is_expandable else left > MIB and size < self.max_split_bytes
        if splits:
            memory.pieces.insert(memory.pieces.index(piece) + 1, Piece(piece.address + size, left))
            piece.size = size
        piece.state, piece.requested = ALLOCATED, requested
        self.event(model.ALLOC, piece.address, requested)
        return piece

    def free(self, piece: Piece) -> None:
        piece.state = AWAITING
        self.event(model.FREE_REQUESTED, piece.address, piece.requested)

    def complete(self, piece: Piece) -> None:
        address, requested = piece.address, piece.requested
        memory = next(memory for memory in self.memories if piece in memory.pieces)
        piece.state = FREE
        place = memory.pieces.index(piece)
        for neighbour in (place + 1, place - 1):
            first = min(place, neighbour)
            if 0 <= neighbour < len(memory.pieces) and memory.pieces[neighbour].state == FREE:
                memory.pieces[first].size += memory.pieces.pop(first + 1).size
        self.event(model.FREE_COMPLETED, address, requested)

    def empty_cache(self) -> None:
        for memory in list(self.memories):
            last = memory.pieces[-1]
            if self.is_expandable:
                page = 2 * MIB if memory.is_small else 20 * MIB
                unmapped = last.size // page * page if last.state == FREE else 0
                if unmapped:
                    memory.size -= unmapped
                    last.size -= unmapped
                    memory.pieces = [piece for piece in memory.pieces if piece.size]
                    self.memories = [memory for memory in self.memories if memory.size]
                    self.event(model.SEGMENT_UNMAP, memory.address + memory.size, unmapped)
            elif last.size == memory.size and last.state == FREE:
                self.memories.remove(memory)
                self.event(model.SEGMENT_FREE, memory.address, memory.size)

    def trace(self, first_event: int = 0) -> DeviceTrace:
        """The trace as a snapshot has it whose oldest events were dropped."""
        events = Events()
        for name in Events.__slots__:
            getattr(events, name).extend(getattr(self.events, name)[first_event:])
        segments = tuple(
            Segment(
                memory.address, memory.size, STREAM, memory.is_small, self.is_expandable, 0,
                tuple(Block(piece.address, piece.size, piece.requested, piece.state) for piece in memory.pieces),
            )
            for memory in self.memories
        )  # fmt: skip
        trace = DeviceTrace(device=0, events=events, segments=segments, dropped_events=first_event)
        return replace(trace, starts_empty=first_event == 0)

    def rounded(self, requested: int) -> int:
        if self.divisions > 1 and requested > 512 * self.divisions:
            power = 1
            while power * 2 <= requested:
                power *= 2
            steps = [power + power * step // self.divisions for step in range(self.divisions + 1)]
            return next(step for step in steps if step >= requested)
        return max(512, (requested + 511) // 512 * 512)

    def fits(self, free: int, size: int) -> bool:
        if free < size:
            return False
        if size < self.max_split_bytes:
            return free < self.max_split_bytes
        return free < size + 20 * MIB

    def new_segment(self, size: int, is_small: bool) -> Memory:
        total = 2 * MIB if is_small else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
        # Segments lie side by side, as they do on a card; still no block reaches over a border.
        memory = Memory(self.next_address, total, is_small, [Piece(self.next_address, total)])
        self.memories.append(memory)
        self.next_address += total
        self.event(model.SEGMENT_ALLOC, memory.address, total)
        return memory

    def mapped(self, size: int, is_small: bool) -> Memory:
        page = 2 * MIB if is_small else 20 * MIB
        memory = next((memory for memory in self.memories if memory.is_small == is_small), None)
        if memory is None:
            memory = Memory(self.next_address, 0, is_small, [])
            self.memories.append(memory)
            self.next_address += 1 << 40
        tail = memory.pieces[-1] if memory.pieces and memory.pieces[-1].state == FREE else None
        mapped = -(-(size - (tail.size if tail else 0)) // page) * page
        at = memory.address + memory.size
        if tail:
            tail.size += mapped
        else:
            memory.pieces.append(Piece(at, mapped))
        memory.size += mapped
        self.event(model.SEGMENT_MAP, at, mapped)
        return memory

    def event(self, kind: int, address: int, size: int) -> None:
        for name, value in (("kind", kind), ("address", address), ("size", size), ("time_us", len(self.events))):
            getattr(self.events, name).append(value)
        for name in ("stream", "pool", "stack"):
            getattr(self.events, name).append(0)
        pieces = [piece for memory in self.memories for piece in memory.pieces]
        allocated = sum(piece.size for piece in pieces if piece.state == ALLOCATED)
        active = sum(piece.size for piece in pieces if piece.state != FREE)
        self.figures.append((allocated, active, sum(memory.size for memory in self.memories)))

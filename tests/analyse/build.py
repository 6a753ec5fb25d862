"""Recordings written by hand: an allocation a line."""

from __future__ import annotations

from collections.abc import Sequence

from dryfit.recording import model
from dryfit.recording.model import DeviceTrace, Events, Label, Mark, ModuleOutput, Recording
from dryfit.recording.stacks import EMPTY, MODULE_FILE, Frame, Stacks

MIB = 1 << 20
BASE_ADDRESS = 0x7F0000000000


def module(path: str) -> Frame:
    """The frame of a module's call."""
    return Frame(MODULE_FILE, path, 0)


def at(file: str, line: int, name: str = "main") -> Frame:
    """The frame of a line of source."""
    return Frame(file, name, line)


class Script:
    """What a program did, written down in its order; `recording()` is the record of it.

    >>> script = Script()
    >>> script.phase(model.SETUP, step=0)
    >>> weight = script.alloc(4096, at("train.py", 3), owner=model.PARAMETER, name="fc.weight")
    >>> script.free(weight)

    Addresses only grow: requests up to 1 MiB share segments of 2 MiB, those below 10 MiB segments of 20 MiB, and larger
    ones have segments of their own, as PyTorch makes them.
    """

    def __init__(self, source: str = "rehearsal") -> None:
        self.source = source
        self.events, self.stacks = Events(), Stacks()
        self.marks: list[Mark] = []
        self.labels: list[Label] = []
        self.modules: list[ModuleOutput] = []
        self.workspaces: list[tuple[int, int]] = []
        self._step = 0
        self._next_segment = BASE_ADDRESS
        self._room = {"small": (0, 0), "large": (0, 0)}
        self._held: dict[int, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self.events)

    def phase(self, phase: str, step: int | None = None, autocast: bool = False) -> None:
        """From here on the program is in this phase, and in this step if one is given."""
        self._step = self._step if step is None else step
        self.marks.append(Mark(len(self.events), self._step, phase, autocast))

    def alloc(
        self,
        size: int,
        *frames: Frame,
        owner: str = "",
        name: str = "",
        dtype: str = "",
        shape: tuple[int, ...] | None = None,
    ) -> int:
        """Allocate; frames come innermost first. The number of the allocation's event is its name from here on."""
        stack = self.stacks.add(frames)
        address = self._place(size, stack)
        event = self._add(model.ALLOC, address, size, stack)
        self._held[event] = address, size
        if owner:
            self.label(event, owner, name, dtype, shape)
        return event

    def label(
        self, event: int, owner: str, name: str = "", dtype: str = "", shape: tuple[int, ...] | None = None
    ) -> None:
        """Say what is known of an allocation."""
        self.labels.append(Label(event, owner, name, dtype, shape))

    def free(self, *allocations: int, stack: Sequence[Frame] = ()) -> None:
        """Free allocations, requested and completed at once."""
        number = self.stacks.add(stack)
        for event in allocations:
            address, size = self._held.pop(event)
            self._add(model.FREE_REQUESTED, address, size, number)
            self._add(model.FREE_COMPLETED, address, size, number)

    def out_of_memory(self, size: int, *frames: Frame, free_bytes: int = 0) -> None:
        """A request that failed."""
        self._add(model.OOM, free_bytes, size, self.stacks.add(frames))

    def address_of(self, event: int) -> int:
        """Where an allocation lies."""
        return self.events.address[event]

    def recording(self) -> Recording:
        """The record of everything so far, on one card that held nothing before."""
        trace = DeviceTrace(
            device=0,
            events=self.events,
            marks=tuple(self.marks),
            labels=tuple(self.labels),
            starts_empty=True,
        )
        return Recording(
            source=self.source,
            devices=(trace,),
            stacks=self.stacks,
            modules=tuple(self.modules),
            workspaces=tuple(self.workspaces),
        )

    def _place(self, size: int, stack: int) -> int:
        rounded = -(-size // 512) * 512
        pool = "small" if size <= MIB else "large"
        address, room = self._room[pool]
        if room < rounded:
            segment = 2 * MIB if pool == "small" else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
            address, room = self._next_segment, segment
            self._next_segment += segment
            self._add(model.SEGMENT_ALLOC, address, segment, stack)
        self._room[pool] = address + rounded, room - rounded
        return address

    def _add(self, kind: int, address: int, size: int, stack: int = EMPTY) -> int:
        events = self.events
        events.kind.append(kind)
        events.address.append(address)
        events.size.append(size)
        events.stream.append(0)
        events.pool.append(0)
        events.stack.append(stack)
        events.time_us.append(10 * len(events.time_us))
        return len(events) - 1

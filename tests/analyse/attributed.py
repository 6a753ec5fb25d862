"""What the attribution says of the allocations of a script, by their events."""

from __future__ import annotations

import dataclasses

from dryfit.analyse import analyse
from dryfit.analyse.attribution import Attribution
from dryfit.recording.model import OWNERS, Label, Segment

from .build import Script


class Attributed:
    """The attribution of a script's recording; allocations are named by the events that made them."""

    def __init__(self, script: Script, held_before: tuple[Segment, ...] | None = None) -> None:
        recording = script.recording()
        (trace,) = recording.devices
        if held_before is not None:
            trace = dataclasses.replace(trace, segments=held_before, starts_empty=False)
        found = analyse(dataclasses.replace(recording, devices=(trace,)))
        self.lifetimes = found.replay.lifetimes
        self.all: Attribution = found.attribution
        self._indexes = {begin: index for index, begin in enumerate(self.lifetimes.begin)}

    def owner(self, event: int) -> str:
        return OWNERS[self.all.owner[self._indexes[event]]]

    def module(self, event: int) -> str:
        return self.all.modules[self.all.module[self._indexes[event]]]

    def line(self, event: int) -> tuple[str, int, str]:
        return self.all.lines[self.all.line[self._indexes[event]]]

    def tensor(self, event: int) -> Label | None:
        return self.all.tensor.get(self._indexes[event])

    def is_logits_or_loss(self, event: int) -> bool:
        return bool(self.all.is_logits_or_loss[self._indexes[event]])

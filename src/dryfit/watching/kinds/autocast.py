"""One autocast region that lasts over optimizer steps, with its cached copies of the weights: DF112."""

from __future__ import annotations

import sys
import types
import weakref
from typing import Any

import torch

from dryfit.findings import Evidence, Finding, Place
from dryfit.findings.finding import DEVICE, HOST
from dryfit.places import is_of_the_program
from dryfit.units import format_bytes
from dryfit.watching import source_places
from dryfit.watching.census import Census
from dryfit.watching.kinds.kind import Kind
from dryfit.watching.situation import Situation

_STEPS = 3


class Autocast(Kind):
    """Looks for a region that was there before the last steps, and is still."""

    def __init__(self, situation: Situation) -> None:
        super().__init__(situation)
        self._steps_within = 0
        self._regions: list[weakref.ref[Any]] = []

    def optimizer_begins(self, optimizer: Any) -> None:
        kinds = {each.split(":")[0] for each in self.situation.home}
        is_within = torch.is_autocast_cache_enabled() and any(map(torch.is_autocast_enabled, kinds))
        self._steps_within = self._steps_within + 1 if is_within else 0

    def step_is_over(self, step: int, census: Census | None) -> None:
        if self._steps_within == 0:
            self._regions = []
            return
        if census is None:
            return
        living = {id(each) for each in census.autocasts}
        stayed = any(id(region) in living for each in self._regions if (region := each()) is not None)
        if stayed and self._steps_within >= _STEPS:
            place, is_around = _region_around_the_loop()
            if is_around:
                self._tell(place)
        if not self._regions:
            self._regions = [weakref.ref(each) for each in census.autocasts]

    def _tell(self, place: Place | None) -> None:
        copies = sum(
            2 * parameter.numel()
            for model in self.situation.models()
            for parameter in model.parameters()
            if parameter.requires_grad and parameter.dtype == torch.float32
        )
        is_on_card = self.situation.is_on_card()
        self.found.append(
            Finding(
                code="DF112",
                claim=f"One autocast region has lasted over {self._steps_within} optimizer steps. It keeps its copies "
                f"of the weights until it ends, up to {format_bytes(copies)}, and goes on with those copies after the "
                f"optimizer has changed the weights.",
                advice="Put the forward pass and the loss of each step into a region of their own, and backward and "
                "the optimizer's step outside of it.",
                place=place,
                evidence=Evidence(
                    memory=DEVICE if is_on_card else HOST,
                    size_bytes=copies,
                    holder="autocast",
                    numbers={"optimizer_steps": self._steps_within},
                ),
            )
        )


def _region_around_the_loop() -> tuple[Place | None, bool]:
    """The `with` of the region, and whether the source agrees that a loop is within it; it does where it is silent."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if is_of_the_program(code.co_filename):
            region = source_places.region_around(code, frame.f_lineno, "autocast")
            if region is not None:
                return region
        frame = frame.f_back
    return None, True

"""A caught exception that keeps the variables of the functions it left: DF109."""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from dryfit.findings import Evidence, Finding, Place
from dryfit.units import format_bytes
from dryfit.watching.census import Census, Storage, storage_of
from dryfit.watching.frames import program_place, running_frames
from dryfit.watching.held import holders_of
from dryfit.watching.kinds.kind import Kind
from dryfit.watching.situation import Situation

_LEAST_BYTES = 1 << 20


class Errors(Kind):
    """Looks at exceptions that live on after a step, and at those within whose handling a model is called."""

    def __init__(self, situation: Situation) -> None:
        super().__init__(situation)
        self._before: set[int] = set()

    def model_called(self, module: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        error = sys.exc_info()[1]
        if error is None or error.__traceback__ is None:
            return
        function, size_bytes = self._keeps(error)
        if size_bytes >= _LEAST_BYTES:
            self.found.append(
                _finding(
                    error,
                    f"{type(module).__name__} is called while a {type(error).__name__} is being handled, and that "
                    f"still has the variables of {function}",
                    "Leave the except block first, and try again after it: the exception goes at its end, and what it "
                    "holds with it.",
                    size_bytes,
                    program_place(),
                    "the exception being handled",
                    self.situation,
                )
            )

    def step_is_over(self, step: int, census: Census | None) -> None:
        if census is None:
            return
        handled = sys.exc_info()[1]
        kept = [each for each in census.errors if each is not handled and each.__traceback__ is not None]
        large = [each for each in kept if self._keeps(each)[1] >= _LEAST_BYTES]
        stayed = [each for each in large if id(each) in self._before]
        self._before = set(map(id, large))
        for held in holders_of(stayed[:4]) if stayed else ():
            if held.has_room_for_so_many and len(stayed) > 1:
                continue
            error = stayed[held.of[0]]
            function, size_bytes = self._keeps(error)
            self.found.append(
                _finding(
                    error,
                    f"{held.name} keeps a {type(error).__name__}, and that has the variables of {function}",
                    "Keep the error's text, not the error: str(error) or traceback.format_exc(); or clear its frames "
                    "by traceback.clear_frames(error.__traceback__).",
                    size_bytes,
                    held.place,
                    held.name,
                    self.situation,
                )
            )

    def _keeps(self, error: BaseException) -> tuple[str, int]:
        """The function whose variables hold most, and the bytes that all of them hold on the models' devices."""
        running = {id(frame) for frame in running_frames()}
        storages: set[Storage] = set()
        most: tuple[int, str] = (0, "")
        at = error.__traceback__
        while at is not None:
            frame, at = at.tb_frame, at.tb_next
            if id(frame) not in running:
                own = {each for each in _storages_in(frame) if each.device in self.situation.home}
                storages |= own
                most = max(most, (sum(each.size_bytes for each in own), frame.f_code.co_name))
        storages -= {
            each
            for model in self.situation.models()
            for each in map(storage_of, model.parameters())
            if each is not None
        }
        return most[1], sum(each.size_bytes for each in storages)


def _storages_in(frame: types.FrameType) -> Iterator[Storage]:
    """Those of a frame that runs no more: its variables, and what it was about to work with, such as half a list."""
    for value in gc.get_referents(frame):
        for tensor in value if type(value) in (list, tuple) else (value,):
            storage = storage_of(tensor) if isinstance(tensor, torch.Tensor) else None
            if storage is not None:
                yield storage


def _finding(
    error: BaseException,
    claim: str,
    advice: str,
    size_bytes: int,
    place: Place | None,
    holder: str,
    situation: Situation,
) -> Finding:
    whose = "the card's memory" if situation.is_on_card() else "the host's memory"
    return Finding(
        code="DF109",
        claim=f"{claim}: {format_bytes(size_bytes)} of {whose} in tensors.",
        advice=advice,
        place=place,
        evidence=Evidence(
            memory="device" if situation.is_on_card() else "host",
            size_bytes=size_bytes,
            holder=holder,
            chain=(type(error).__name__, "__traceback__", "tb_frame"),
        ),
    )

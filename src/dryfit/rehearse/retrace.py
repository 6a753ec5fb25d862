"""Plays the allocations of a recording through PyTorch's own allocator, under other settings and on other cards.

To retrace is neither to rehearse, for no program runs, nor to replay, which works out from the events what the recorded
allocator did: here the allocator of the installed torch decides anew where each block goes, on the virtual card. What
the program would have done differently for its memory, such as skipping an empty_cache, it does not know.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dryfit.cards import unlimited_card
from dryfit.errors import DryfitError
from dryfit.recording.model import DeviceTrace
from dryfit.rehearse.allocator_settings import VARIABLE, AllocatorSettings, recorded_settings
from dryfit.rehearse.inside.retrace import COLUMNS
from dryfit.rehearse.requests import Requests, requests_of
from dryfit.virtual_card import environment, installed_torch
from dryfit.virtual_card.settings import CardSettings, settings_of

# The user's own, which would change the allocator or hide the card.
_LEFT_OUT = ("PYTORCH_ALLOC_CONF", VARIABLE, "PYTORCH_NO_CUDA_MEMORY_CACHING", "CUDA_VISIBLE_DEVICES")
_PACKAGE = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retraced:
    """What PyTorch's allocator made of a recording's requests. Sizes are bytes.

    The peaks are those since the recording began. `memory_bytes` is what PyTorch could have of the card, None without a
    limit. `failed_event` is the number of the recorded event whose request failed, though it was served when it was
    recorded: what came after it was not played; `failed_bytes` is its size, None where all was served. `unserved`
    counts the requests that failed when they were recorded and failed again, `ooms` all that failed. `retries` counts
    how often the allocator had to give back its cache and ask again. `begin_allocated_bytes` and
    `begin_reserved_bytes` are the state in which the recording began (0 if not even that could be had),
    `begin_is_exact` whether it is the recorded one.
    `torch` is the version whose allocator this is.
    """

    settings: AllocatorSettings
    memory_bytes: int | None
    peak_allocated_bytes: int
    peak_active_bytes: int
    peak_reserved_bytes: int
    begin_allocated_bytes: int
    begin_reserved_bytes: int
    begin_is_exact: bool
    end_reserved_bytes: int
    ooms: int
    unserved: int
    retries: int
    failed_event: int | None
    failed_bytes: int | None
    seconds: float
    torch: str

    @property
    def served_all(self) -> bool:
        """Whether no request failed, those that failed when they were recorded included."""
        return not self.ooms


@contextlib.contextmanager
def allocator_process() -> Iterator[AllocatorProcess]:
    """A process with PyTorch's allocator in it, to play recordings in; torch is imported once for all of them.

    Raises:
        UsageError: there is no torch with CUDA in it.
    """
    with tempfile.TemporaryDirectory(prefix="dryfit-retrace-") as folder:
        process = AllocatorProcess(Path(folder))
        try:
            yield process
        finally:
            process.close()


@contextlib.contextmanager
def retraces(trace: DeviceTrace, allocator_settings: Mapping[str, Any] | None = None) -> Iterator[Retraces]:
    """Play one card's recording several times; each playing takes seconds or less.

        with retraces(trace, recording.about.get("allocator_settings")) as retrace:
            retrace().peak_reserved_bytes
            retrace(AllocatorSettings(expandable_segments=True), memory_bytes=24 << 30).served_all

    `allocator_settings` are those of the recording, as a snapshot has them.

    Raises:
        UsageError: there is no torch with CUDA in it, or the recording is damaged.
    """
    with allocator_process() as process:
        yield Retraces(trace, recorded_settings(allocator_settings), process)


class Retraces:
    """What `retraces` gives: called with settings and a size, it plays the recording."""

    def __init__(self, trace: DeviceTrace, recorded: AllocatorSettings, process: AllocatorProcess) -> None:
        self.recorded = recorded
        self._trace, self._process = trace, process
        self._requests: dict[bool, Requests] = {}
        self._played: dict[tuple[AllocatorSettings, int | None, float | None], Retraced] = {}

    @property
    def capacity_bytes(self) -> int | None:
        """What PyTorch could have of the recorded card, as far as the events tell; None where they do not."""
        return self._requests_for(self.recorded).capacity_bytes

    def __call__(
        self,
        settings: AllocatorSettings | None = None,
        *,
        memory_bytes: int | None = None,
        memory_fraction: float | None = None,
    ) -> Retraced:
        """Play the recording under settings, the recorded ones unless given.

        `memory_bytes` is what PyTorch can have of the card, None for no limit. `memory_fraction`, below 1, is what
        `torch.cuda.set_per_process_memory_fraction` is called with; without one, no garbage is collected.

        Raises:
            DryfitError: torch refuses the settings, or its process ends.
        """
        settings = settings or self.recorded
        key = (settings, memory_bytes, memory_fraction)
        if key not in self._played:
            requests = self._requests_for(settings)
            self._played[key] = self._process.play(requests, settings, memory_bytes, memory_fraction)
        return self._played[key]

    def _requests_for(self, settings: AllocatorSettings) -> Requests:
        """There are two kinds: with what was held at the beginning as it was, and packed."""
        as_recorded = self.recorded.place_as(settings)
        if as_recorded not in self._requests:
            self._requests[as_recorded] = requests_of(self._trace, self.recorded, settings)
        return self._requests[as_recorded]


class AllocatorProcess:
    """The process, and what is said to it and by it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: tuple[Requests, Path] | None = None
        variables = _variables()
        self._errors = (folder / "errors").open("w+b")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dryfit.rehearse.inside.retrace"],
            cwd=folder,  # where nothing lies that an import could find first
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def play(
        self,
        requests: Requests,
        settings: AllocatorSettings,
        memory_bytes: int | None = None,
        memory_fraction: float | None = None,
        *,
        card: CardSettings | None = None,
    ) -> Retraced:
        """Play requests through a new allocator; as `Retraces.__call__`, or on a card.

        A card has its own order of addresses and its own memory, all that is outside PyTorch's allocator included.
        """
        if card is None:
            card = settings_of(unlimited_card(), address_order=requests.address_order)
            if memory_bytes is not None:
                card = dataclasses.replace(card, memory_bytes=memory_bytes)
        answer = self._ask(
            {
                "requests": str(self._file_of(requests)),
                "count": len(requests.kind),
                "memory_fraction": memory_fraction,
                "variables": {**environment(card), VARIABLE: settings.text()},
            }
        )
        if "failure" in answer:
            raise DryfitError(
                f"The recording could not be played under {settings.in_words()} with torch {answer['torch']}: "
                f"{answer['failure'].rstrip('.')}."
            )
        begin, peaks, failed_at = answer["begin"], answer["peaks"], answer["failed_at"]
        exact = {"allocated": requests.begin_allocated_bytes, "reserved": requests.begin_reserved_bytes}
        return Retraced(
            settings=settings,
            memory_bytes=memory_bytes,
            peak_allocated_bytes=peaks["allocated"],
            peak_active_bytes=peaks["active"],
            peak_reserved_bytes=peaks["reserved"],
            begin_allocated_bytes=begin.get("allocated", 0),
            begin_reserved_bytes=begin.get("reserved", 0),
            begin_is_exact=requests.begins_as_recorded and all(begin.get(name) == exact[name] for name in exact),
            end_reserved_bytes=answer["end_reserved"],
            ooms=answer["ooms"],
            unserved=answer["unserved"],
            retries=answer["retries"],
            failed_event=None if failed_at < 0 else requests.event[failed_at],
            failed_bytes=None if failed_at < 0 else requests.number[failed_at],
            seconds=answer["seconds"],
            torch=answer["torch"],
        )

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._errors):
            if file is not None:
                with contextlib.suppress(BrokenPipeError):
                    file.close()

    def _ask(self, job: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = ""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        raise DryfitError(
            "The process that plays recordings through PyTorch's allocator has ended"
            f"{': ' + said[-1] if said else ', and said nothing'}."
        )

    def _file_of(self, requests: Requests) -> Path:
        if self._written is None or self._written[0] is not requests:
            path = self._folder / "requests"
            with path.open("wb") as file:
                for name, _ in COLUMNS:
                    getattr(requests, name).tofile(file)
            self._written = requests, path
        return self._written[1]


def _variables() -> dict[str, str]:
    build = installed_torch()
    variables = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
    variables |= environment(settings_of(unlimited_card()), build)
    variables["PYTHONPATH"] = os.pathsep.join((str(_PACKAGE), str(build.folder.parent)))
    return variables

"""Rehearsals for a search: several at once, from the cache where that knows them, stopped together by Ctrl-C."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dryfit.cards import Card
from dryfit.rehearse.limits import INTERRUPTED
from dryfit.rehearse.result import Result
from dryfit.rehearse.world import World
from dryfit.search import cache
from dryfit.search.progress import SearchProgress
from dryfit.search.trial import Trial, trial_of
from dryfit.search.words import Sweep
from dryfit.units import TIB

if TYPE_CHECKING:
    from typing_extensions import Self

_Found = TypeVar("_Found")

_LOOK_SECONDS = 0.2
_WITHOUT_LIMIT_BYTES = 2 * TIB  # as the catalogue's unlimited card

# Runs words on a card: as `dryfit.run`, with its own options already given to it.
Rehearse = Callable[..., Result]


class Stopped(Exception):
    """The search is being stopped, by Ctrl-C or because another part of it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where one search takes place: a card as it was named, the bytes of it to leave free, and a row's words.

    With a `world` the program plays one rank of so many, the first or the last.
    """

    gpu: str
    card: Card
    reserve_bytes: int
    row: Mapping[str, str]
    world: World | None = None
    is_last_rank: bool = False

    @property
    def place(self) -> str:
        """The card, and the rank of a world, for the progress line."""
        if self.world is None:
            return self.gpu
        return f"{self.gpu} as rank {self.world.size - 1 if self.is_last_rank else 0} of {self.world.size}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One rehearsal: a program's words on a card, as `dryfit.run` takes them. `what` names it on the progress line.

    `memory_bytes` stands in place of the card's, see `without_limit`; `value` is what the words were made with. With a
    `world` those of its ranks are played that `ranks` names, as `dryfit.run` takes them.
    """

    what: str
    words: Sequence[str]
    gpu: str
    card: Card
    reserve_bytes: int = 0
    memory_bytes: int | None = None
    measures: tuple[str, ...] = ()
    facts: bool = False
    value: int = 0
    world: World | None = None
    ranks: str = "0"

    @property
    def without_limit(self) -> Wanted:
        """The same on the card's chip with more memory than any program needs."""
        return replace(self, what=f"{self.what} without a limit", memory_bytes=_WITHOUT_LIMIT_BYTES)


@dataclass(slots=True, kw_only=True)
class Runner:
    """Runs the rehearsals of a whole search, `jobs` at a time; counts them. To be used in a `with` block."""

    rehearse: Rehearse
    about: Mapping[str, Any]  # what else decides what a rehearsal finds: the steps, the version of torch
    jobs: int
    folder: Path | None  # of the cache, None without one
    progress: SearchProgress
    stop: threading.Event = field(default_factory=threading.Event)
    run: int = 0
    from_cache: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _pool: ThreadPoolExecutor = field(init=False)

    def __post_init__(self) -> None:
        self._pool = ThreadPoolExecutor(self.jobs, thread_name_prefix="dryfit-rehearsal")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self._pool.shutdown(cancel_futures=True)
        self.progress.clear()

    def begin(self, wanted: Wanted) -> Future[Trial]:
        """Have a rehearsal run as soon as there is room for it.

        Raises, from the future's result:
            Stopped: the search was stopped meanwhile.
        """
        return self._pool.submit(self._try_one, wanted)

    def _try_one(self, wanted: Wanted) -> Trial:
        if self.stop.is_set():
            raise Stopped
        options = {
            "memory_bytes": wanted.memory_bytes,
            "reserve_bytes": wanted.reserve_bytes,
            **({"measures": wanted.measures} if wanted.measures else {}),
            **({"facts": True} if wanted.facts else {}),
            **_of_world(wanted),
        }
        key = cache.key_of(wanted.words, {**self.about, "card": wanted.card.to_dict(), **options})
        trial = cache.look_up(key, self.folder) if self.folder is not None else None
        if trial is None:
            self.progress.begins(wanted.what)
            result = self.rehearse(wanted.words, gpu=wanted.gpu, stop=self.stop, **options)
            if result.ending.how == INTERRUPTED:
                raise Stopped
            trial = trial_of(wanted.value, result, reserve_bytes=wanted.reserve_bytes)
            if self.folder is not None:
                cache.keep(key, trial, result.files, self.folder)
        with self._lock:
            self.run += not trial.from_cache
            self.from_cache += trial.from_cache
        self.progress.ended(wanted.what, trial, has_limit=wanted.memory_bytes != _WITHOUT_LIMIT_BYTES)
        return trial


def _of_world(wanted: Wanted) -> dict[str, Any]:
    """What `dryfit.run` is told of a world; nothing where the program is no rank that plays alone."""
    if wanted.world is None:
        return {}
    return {"world": wanted.world.size, "nodes": wanted.world.nodes, "ranks": wanted.ranks}


@dataclass(slots=True, kw_only=True)
class Rehearsals(Runner):
    """Runs those of a search over the values of a placeholder."""

    sweep: Sweep

    def try_all(self, setting: Setting, values: Sequence[int]) -> dict[int, Trial]:
        """Rehearse these values, and say what came of each.

        Raises:
            Stopped: the search was stopped meanwhile.
        """
        running = [self.begin(self._wanted(setting, value)) for value in values]
        return {value: future.result() for value, future in zip(values, running, strict=True)}

    def without_limit(self, setting: Setting, value: int) -> Trial:
        """Rehearse a value on the setting's chip with more memory than any program needs.

        Raises:
            Stopped: the search was stopped meanwhile.
        """
        return self.begin(self._wanted(setting, value).without_limit).result()

    def _wanted(self, setting: Setting, value: int) -> Wanted:
        row = "".join(f", {name} {word}" for name, word in setting.row.items())
        return Wanted(
            what=f"{self.sweep.searched} {value}{row} on {setting.place}",
            words=self.sweep.command(setting.row, value),
            gpu=setting.gpu,
            card=setting.card,
            reserve_bytes=setting.reserve_bytes,
            value=value,
            world=setting.world,
            ranks="last" if setting.is_last_rank else "0",
        )


def all_at_once(searches: Sequence[Callable[[], _Found]], runner: Runner) -> list[_Found]:
    """Run searches beside each other; they share the runner's pool. What ends one of them ends all."""
    if not searches:
        return []
    with ThreadPoolExecutor(len(searches), thread_name_prefix="dryfit-search") as threads:
        try:
            running = [threads.submit(search) for search in searches]
            while True:  # not without an end: a signal that another thread gets does not wake this one
                done, others = wait(running, timeout=_LOOK_SECONDS, return_when=FIRST_EXCEPTION)
                errors = [error for future in done if (error := future.exception()) is not None]
                if errors or not others:
                    break
            if errors:
                raise min(errors, key=lambda error: isinstance(error, Stopped))  # the cause, not what it stopped
            return [future.result() for future in running]
        except BaseException:
            runner.stop.set()
            raise

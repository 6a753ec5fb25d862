"""The answer of a search: a value that can be saved, read back and printed in any form."""

from __future__ import annotations

import importlib
import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from dryfit.rehearse.endings import EXIT_DOES_NOT_FIT, EXIT_FITS, EXIT_LIMIT, EXIT_USAGE
from dryfit.saved import read_saved, write_saved
from dryfit.search.effective import EffectiveBatch
from dryfit.search.law import Law
from dryfit.search.trial import STOPPED, TOO_BIG, Trial

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What the smallest value takes, where not even that fits: rehearsed on the card's own chip without a limit.

    `card` is the smallest of the catalogue that it was then rehearsed on and does fit, None if none was found.
    """

    value: int
    peak_total_bytes: int
    card: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one card holds, with one row's words. `gpu` is the name that the card was asked for by.

    `largest` is the largest value that fits, by the memory expected outside PyTorch's allocator; `surely` the largest
    that does whatever of its margin that takes. `beyond` is the next value, which was rehearsed and does not fit; None
    where the range ends with `largest`. `multiple_of` and `out_of_order` are as in `largest.Found`.

    With a `world` the program played its rank 0, and with `largest` the last one too, see `last_rank`: shards may be
    uneven. `rank` is the one that decided: the last where it takes more; then `trials` are the last's, beside
    those of rank 0 that do not fit, and `first_rank` is the rehearsal of `largest` as rank 0.
    """

    gpu: str
    card: dict[str, Any]
    row: dict[str, str] = field(default_factory=dict)
    world: int | None = None
    rank: int | None = None
    first_rank: Trial | None = None
    last_rank: Trial | None = None
    largest: int | None
    surely: int | None = None
    beyond: int | None = None
    multiple_of: int = 1
    out_of_order: tuple[int, ...] = ()
    law: Law | None = None
    effective: EffectiveBatch | None = None
    need: Need | None = None
    trials: tuple[Trial, ...] = ()

    def trial(self, value: int | None) -> Trial | None:
        """The rehearsal of a value; None if it was not rehearsed."""
        return next((trial for trial in self.trials if trial.value == value), None)

    @property
    def why_none(self) -> str | None:
        """Why nothing fits: "too big", "failed" or "stopped"; None where something does."""
        if self.largest is not None or not self.trials:
            return None
        kinds = [trial.kind for trial in self.trials]
        return next((kind for kind in (TOO_BIG, STOPPED) if kind in kinds), kinds[0])

    def to_dict(self) -> dict[str, Any]:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        for name in ("law", "effective", "first_rank", "last_rank"):
            values[name] = values[name].to_dict() if values[name] is not None else None
        values["need"] = asdict(self.need) if self.need is not None else None
        return values | {"out_of_order": list(self.out_of_order), "trials": [trial.to_dict() for trial in self.trials]}


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallestWorld:
    """The smallest of the worlds asked for in which something fits, for one card and row; None if it fits in none."""

    gpu: str
    row: dict[str, str]
    world: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The largest values that fit, one answer for each row, card and world. All sizes are bytes.

    `program` has the placeholders in it, `searched` names the one that was searched, from `lowest` to `highest`.
    `rehearsals` were run for it, and `from_cache` taken from earlier ones. `options` are those of `dryfit.run` that
    were given; `nodes` machines share each world, None for as many as have eight cards each.
    """

    program: list[str]
    searched: str
    lowest: int
    highest: int
    reserve_bytes: int = 0
    nodes: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    answers: tuple[Answer, ...]
    rehearsals: int
    from_cache: int
    wall_seconds: float
    versions: dict[str, str | None] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    @property
    def largest(self) -> int | None:
        """The largest value that fits, of the first answer: the only one of a search for one card without rows."""
        return self.answers[0].largest

    @property
    def smallest_worlds(self) -> tuple[SmallestWorld, ...]:
        """For each card and row, the smallest world in which something fits; empty where no worlds were asked for."""
        found: list[SmallestWorld] = []
        for answers in self._by_card():
            worlds = [each.world for each in answers if each.world is not None and each.largest is not None]
            if answers[0].world is not None:
                smallest = SmallestWorld(gpu=answers[0].gpu, row=answers[0].row, world=min(worlds, default=None))
                found.append(smallest)
        return tuple(found)

    def _by_card(self) -> list[list[Answer]]:
        """The answers of each card and row, which differ in their worlds."""
        groups: dict[tuple[str, tuple[tuple[str, str], ...]], list[Answer]] = {}
        for answer in self.answers:
            groups.setdefault((answer.gpu, tuple(answer.row.items())), []).append(answer)
        return list(groups.values())

    @property
    def exit_code(self) -> int:
        """0 if each card holds something, in one of the worlds; 1 where none fits, 2 where the program fails.

        3 where a limit stopped it.
        """
        none = [each for each in self._by_card() if all(answer.largest is None for answer in each)]
        why = {answer.why_none for answers in none for answer in answers}
        codes = {"failed": EXIT_USAGE, STOPPED: EXIT_LIMIT, TOO_BIG: EXIT_DOES_NOT_FIT}
        return next((code for kind, code in codes.items() if kind in why), EXIT_FITS)

    def to_dict(self) -> dict[str, Any]:
        """The search as plain values, in the order that docs/fit.md documents."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        answers = [answer.to_dict() for answer in self.answers]
        smallest = [asdict(each) for each in self.smallest_worlds]
        return {"schema_version": self.schema_version} | values | {"answers": answers, "smallest_worlds": smallest}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2)

    def save(self, path: str | Path) -> None:
        """Write the search as JSON.

        Raises:
            UsageError: the file cannot be written.
        """
        write_saved(self.to_json(), path, what="search")

    @classmethod
    def load(cls, path: str | Path) -> Fit:
        """Read a saved search.

        Raises:
            UsageError: the file is none, or of a newer schema than this dryfit knows.
        """
        return read_saved(cls, path, what="search of dryfit fit", newest=SCHEMA_VERSION)

    def _repr_html_(self) -> str:
        """The search in a notebook, as the terminal shows it."""
        shown: str = importlib.import_module("dryfit.report.fit").html(self)  # the one step back: reports read values
        return shown

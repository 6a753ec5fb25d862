"""The answer of a plan: a value that can be saved, read back and printed in any form."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from dryfit.measures.price import Price
from dryfit.plain import to_plain
from dryfit.rehearse.endings import EXIT_DOES_NOT_FIT, EXIT_FITS, EXIT_LIMIT, EXIT_USAGE
from dryfit.rehearse.result import Communication, RankPeak, sent_bytes_of
from dryfit.rehearse.world import World
from dryfit.saved import read_saved, write_saved
from dryfit.search.combinations import Order
from dryfit.search.trial import FITS, STOPPED, TOO_BIG

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A set of measures, rehearsed; of none for the program as it is. All sizes are bytes.

    `kind` is "fits"; "too big"; "failed": the program ends by another error with it; or "stopped": a limit of dryfit's
    ended it. The peaks are those of the rehearsal on the card where it fits, and without a limit where it is too big;
    then `lacking_bytes` is what the total is above what the card has to give. `is_close` says that what is outside
    PyTorch's allocator is not known well enough to tell: there may be `margin_bytes` more, or less of what is too big.
    `price` is None where it was not counted. `command` is the program with these measures, as `dryfit run --with` takes
    it. In a world the figures are those of `rank`, the one that takes most of `ranks`, if several were rehearsed;
    `communication` is what each of its steps passes to others.
    """

    measures: tuple[str, ...]
    kind: str
    command: tuple[str, ...]
    peak_allocated_bytes: int = 0
    peak_reserved_bytes: int = 0
    peak_total_bytes: int = 0
    lacking_bytes: int = 0
    phase: str | None = None
    phase_peaks: dict[str, int] = field(default_factory=dict)
    is_close: bool = False
    margin_bytes: int = 0
    price: Price | None = None
    sentence: str = ""
    sizes_unknown: bool = False
    growth_bytes: int = 0
    rank: int | None = None
    ranks: tuple[RankPeak, ...] = ()
    communication: dict[str, Communication] = field(default_factory=dict)

    @property
    def sent_bytes(self) -> int:
        """What one rank sends to others in each step, 0 for a program on one card."""
        return sent_bytes_of(self.communication)

    @property
    def order(self) -> tuple[int, Order, int]:
        """What a table is sorted by: what fits by its price, then what lacks least, then what gave no answer."""
        rank = {FITS: 0, TOO_BIG: 1}.get(self.kind, 2)
        price = self.price.order if self.price is not None and self.kind == FITS else (len(self.measures),)
        return rank, price if self.kind == FITS else (), self.peak_total_bytes


def are_alike(ranks: Iterable[RankPeak]) -> bool:
    """Whether all ranks that were rehearsed take the same."""
    return len({(each.peak_allocated_bytes, each.peak_reserved_bytes, each.peak_total_bytes) for each in ranks}) < 2


class _Judged(Protocol):
    """A set of measures of which it is known whether it fits."""

    @property
    def measures(self) -> tuple[str, ...]: ...
    @property
    def kind(self) -> str: ...
    @property
    def is_close(self) -> bool: ...


def is_more_than_needed(one: _Judged, others: Iterable[_Judged]) -> bool:
    """Whether it fits, and so does, as surely, a part of it alone."""
    return one.kind == FITS and any(
        set(other.measures) < set(one.measures) and other.kind == FITS and other.is_close <= one.is_close
        for other in others
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToWrite:
    """How a person writes one of the measures: `snippet` is for the way in which this program trains."""

    measure: str
    title: str
    what: str
    snippet: str
    needs: str = ""
    not_counted: str = ""
    caution: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotTaken:
    """A measure that is in no combination, and why: it was rehearsed and rejected, or not tried at all.

    `how_to` is what to write to have it tried, where that is all that is missing.
    """

    measure: str
    why: str
    how_to: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFor:
    """The smallest card of the catalogue that a set of measures was rehearsed on and fits; None if none was found."""

    measures: tuple[str, ...]
    peak_total_bytes: int
    card: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How far the search went; of the numbers see `combinations.Searched`.

    With `is_strict` it was the search for what fits whatever of the margin outside PyTorch's allocator is taken.
    `measures` are those that help alone. `largest` is how many of them the largest combinations that were searched
    hold, 0 where those are all there are. At `most` so many combinations were to be rehearsed.
    """

    is_strict: bool = False
    measures: int
    combinations: int
    rehearsed: int
    unanswered: int
    cheaper: int
    ruled_out: int
    left: int
    largest: int
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What makes a program fit on a card, and what each costs. All sizes are bytes.

    `cheapest` are the measures of the cheapest set that fits: () if the program fits as it is, None if none was found.
    `surely` is the cheapest that fits whatever of the margin outside PyTorch's allocator is taken. Where nothing fits,
    `nearest` is what comes nearest. `tried` has all that was rehearsed and helps, the best first; `to_write` says how a
    person writes the cheapest that surely fits, or else the cheapest, or the nearest. `keep` is what was not to be
    changed. With a `world` the program was rehearsed as ranks of it. `options` are those of `dryfit.run` that were
    given. `searched` says how far the search went, and the one for what surely fits, where there was one.
    """

    program: list[str]
    gpu: str
    card: dict[str, Any]
    keep: str
    batch: int | None = None
    reserve_bytes: int = 0
    world: World | None = None
    options: dict[str, Any] = field(default_factory=dict)
    way: str = ""
    as_it_is: Tried
    cheapest: tuple[str, ...] | None = None
    surely: tuple[str, ...] | None = None
    nearest: tuple[str, ...] | None = None
    tried: tuple[Tried, ...] = ()
    to_write: tuple[ToWrite, ...] = ()
    rejected: tuple[NotTaken, ...] = ()
    not_tried: tuple[NotTaken, ...] = ()
    cards: tuple[CardFor, ...] = ()
    searched: tuple[Extent, ...] = ()
    notes: tuple[str, ...] = ()
    rehearsals: int
    from_cache: int
    wall_seconds: float
    versions: dict[str, str | None] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    def of(self, measures: Sequence[str] | None) -> Tried | None:
        """What was rehearsed with these measures; None if that was not."""
        if measures is None:
            return None
        return next((each for each in (self.as_it_is, *self.tried) if each.measures == tuple(measures)), None)

    @property
    def exit_code(self) -> int:
        """0 if something fits, 1 if nothing does, 2 where the program fails, 3 where a limit stopped it."""
        if self.as_it_is.kind == STOPPED:
            return EXIT_LIMIT
        if self.as_it_is.kind not in (FITS, TOO_BIG):
            return EXIT_USAGE
        return EXIT_DOES_NOT_FIT if self.cheapest is None else EXIT_FITS

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain values, in the order that docs/plan.md documents; prices with their percentages."""
        values: dict[str, Any] = to_plain(self)
        for tried, plain in zip((self.as_it_is, *self.tried), (values["as_it_is"], *values["tried"]), strict=True):
            plain["price"] = tried.price.to_dict() if tried.price is not None else None
        return {"schema_version": self.schema_version} | values

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2)

    def save(self, path: str | Path) -> None:
        """Write the plan as JSON.

        Raises:
            UsageError: the file cannot be written.
        """
        write_saved(self.to_json(), path, what="plan")

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read a saved plan.

        Raises:
            UsageError: the file is none, or of a newer schema than this dryfit knows.
        """
        return read_saved(cls, path, what="plan of dryfit plan", newest=SCHEMA_VERSION)

    def _repr_html_(self) -> str:
        """The plan in a notebook, as the terminal shows it."""
        shown: str = importlib.import_module("dryfit.report.plan").html(self)  # the one step back: reports read values
        return shown

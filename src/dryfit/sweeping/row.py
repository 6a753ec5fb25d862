"""One cell's answer: its settings and the figures of its rehearsal, or the error that it ended with."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from dryfit.rehearse.endings import EXIT_DOES_NOT_FIT, EXIT_FITS, SAYS_MORE, WHOLE
from dryfit.rehearse.result import DOES_NOT_FIT, Result, sent_bytes_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a cell. All sizes are bytes, and as in a `Result`; None where there is an error.

    `error` is the class of an exception, or how the rehearsal ended, and `error_sentence` what there is to say of it;
    both are "" where the cell has an answer. `smallest_card` is the smallest of the catalogue that holds the program,
    where no card was named. `sent_bytes` is what a step sends to other ranks. `ending` is as in a `Result`, `torch` the
    version that was rehearsed with.
    """

    verdict: str = ""
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    peak_total_low_bytes: int | None = None
    peak_total_bytes: int | None = None
    peak_total_high_bytes: int | None = None
    sent_bytes: int | None = None
    smallest_card: str | None = None
    steps: int | None = None
    seconds: float = 0.0
    ending: str = ""
    torch: str | None = None
    error: str = ""
    error_sentence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A cell and its outcome. `settings` are the values of the program's placeholders; `measures` as in "a,b:4"."""

    program: str
    settings: dict[str, Any] = field(default_factory=dict, hash=False)
    gpu: str | None = None
    world: int | None = None
    measures: str = ""
    outcome: Outcome

    def to_dict(self, settings: tuple[str, ...] | None = None) -> dict[str, Any]:
        """The columns of the table, `settings` among them; the row's own unless others are named, which are None."""
        names = tuple(self.settings) if settings is None else settings
        return {
            "program": self.program,
            **{name: self.settings.get(name) for name in names},
            "gpu": self.gpu,
            "world": self.world,
            "with": self.measures,
            **{each.name: getattr(self.outcome, each.name) for each in fields(Outcome)},
        }


RESULT_COLUMNS = ("program", *(each.name for each in fields(Outcome)))
"""Names that no placeholder may have, since the table has them."""


def outcome_of(result: Result) -> Outcome:
    """The outcome of a rehearsal: figures if it has an answer, also if that is "too close to call"; else an error."""
    how, total = result.ending.how, result.peak_total_range_bytes
    common: dict[str, Any] = {
        "steps": result.steps,
        "seconds": result.wall_seconds,
        "ending": how,
        "torch": result.versions.get("torch"),
    }
    answered = result.exit_code in (EXIT_FITS, EXIT_DOES_NOT_FIT)
    if not answered and not (how in WHOLE and result.peak_total_bytes):
        kind = "nothing on the card" if how in WHOLE else result.ending.error_type or how
        sentence = result.ending.sentence.replace(f" {SAYS_MORE}", "")  # it has no output here
        return Outcome(**common, error=kind, error_sentence=sentence)
    return Outcome(
        **common,
        verdict=result.verdict,
        peak_allocated_bytes=result.peak_allocated_bytes,
        peak_reserved_bytes=result.peak_reserved_bytes,
        peak_total_low_bytes=total["low"],
        peak_total_bytes=total["expected"],
        peak_total_high_bytes=total["high"],
        sent_bytes=sent_bytes_of(result.communication),
        smallest_card=result.fits_on[0] if result.fits_on and result.verdict != DOES_NOT_FIT else None,
    )


def outcome_of_error(error: BaseException) -> Outcome:
    """The outcome of a cell that could not be rehearsed."""
    return Outcome(error=type(error).__name__, error_sentence=str(error) or repr(error))

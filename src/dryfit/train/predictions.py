"""What `dryfit run` and `dryfit fit` have saved, as far as a training loop has a use for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from dryfit.errors import UsageError
from dryfit.saved import read_saved

_NEWEST_SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedPeaks:
    """The peaks of a rehearsal, in bytes; `phase_peaks` is what tensors hold at most in each phase of any step."""

    peak_allocated_bytes: int
    peak_reserved_bytes: int
    phase_peaks: dict[str, int] = field(default_factory=dict)


def predicted_peaks(saved: str | Path) -> PredictedPeaks:
    """Read the peaks out of a result that `dryfit run --output` has saved.

    Raises:
        UsageError: the file is none, or of a newer schema than this dryfit knows.
    """
    return read_saved(PredictedPeaks, saved, what="result of dryfit run", newest=_NEWEST_SCHEMA)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    gpu: str
    card: dict[str, Any]
    row: dict[str, str] = field(default_factory=dict)
    largest: int | None
    surely: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fit:
    searched: str
    answers: tuple[_Answer, ...]


def largest_that_fits(saved: str | Path) -> int:
    """Read the largest batch that surely fits out of a search that `dryfit fit --output` has saved.

    That is with the most memory outside of PyTorch's allocator that is to be expected; where nothing fits then, the
    largest that fits with what is likely. Of a search for several cards, the answer for the card at hand counts.

    Raises:
        UsageError: the file is none, nothing fits by it, or it has several answers for this card.
    """
    found = read_saved(_Fit, saved, what="search of dryfit fit", newest=_NEWEST_SCHEMA)
    answers = found.answers
    if len(answers) > 1 and torch.cuda.is_available():
        name = torch.cuda.get_device_name()
        answers = tuple(answer for answer in answers if answer.card.get("name") == name)
    if len(answers) != 1:
        told = ", ".join(f"{_called(answer)}: {answer.largest}" for answer in found.answers)
        raise UsageError(
            f"{saved} has {len(answers) or 'no'} answers for this card, so it is not known which {found.searched} is "
            f"meant ({told}). Give the number itself: start=..."
        )
    (answer,) = answers
    if answer.largest is None:
        raise UsageError(
            f"By {saved}, no {found.searched} fits on {_called(answer)}, so there is none to start with; "
            f"`dryfit plan` says what would make one fit."
        )
    return answer.surely or answer.largest


def _called(answer: _Answer) -> str:
    return " ".join([answer.gpu, *(f"{name}={value}" for name, value in answer.row.items())])

"""Rehearsals of the small programs beside, from warm servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dryfit.rehearse.result import Result
from dryfit.rehearse.warm import warm_rehearsals

CARD = "sm=80,sms=108,memory=40GiB"
PROGRAMS = Path(__file__).parent / "programs"
# These import training stacks.
STACKS = {"lightning_outputs", "transformers_loss", "lightning_plain", "transformers_plain"}

Rehearse = Callable[..., Result]


def _warm(entry: Path) -> Iterator[Rehearse]:
    options = {"gpu": CARD, "quiet": True, "figures_only": True, "observe": True}
    with warm_rehearsals([str(entry)], **options) as rehearse_one:
        yield lambda program, **others: rehearse_one([str(entry), str(program)], **others)


@pytest.fixture(scope="session")
def _plain() -> Iterator[Rehearse]:
    yield from _warm(PROGRAMS / "entry.py")


@pytest.fixture(scope="session")
def _stacks() -> Iterator[Rehearse]:
    yield from _warm(PROGRAMS / "stacks.py")


@pytest.fixture
def rehearse(request: pytest.FixtureRequest) -> Rehearse:
    """rehearse(PROGRAMS / "leaky" / "loss_summed.py"): its result, after the steps that a plain `dryfit run` takes."""

    def run(program: Path, **options: Any) -> Result:
        of_stacks: Rehearse = request.getfixturevalue("_stacks" if program.stem in STACKS else "_plain")
        return of_stacks(program, **options)

    return run

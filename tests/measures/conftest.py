"""Rehearsals of small programs with a measure switched on, and of the same with the measure written by hand."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dryfit.rehearse.result import Result
from dryfit.rehearse.warm import warm_rehearsals

# Large enough for every small program here; its cuBLAS workspace and outside memory are an A100's.
CARD = "sm=80,sms=108,memory=40GiB"
PROGRAMS = Path(__file__).parent / "programs"
ENTRY, STACKS = str(PROGRAMS / "entry.py"), str(PROGRAMS / "stacks.py")

Rehearse = Callable[..., Result]


@pytest.fixture(scope="session", autouse=True)
def compile_in_one_process() -> Iterator[None]:
    """Inductor's pool of processes takes longer to start than these small programs take to compile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
        yield


@pytest.fixture(scope="session")
def _warm() -> Iterator[Rehearse]:
    with warm_rehearsals([ENTRY], gpu=CARD, quiet=True, figures_only=True) as rehearse_one:
        yield _once(rehearse_one, ENTRY)


@pytest.fixture(scope="session")
def _warm_stacks() -> Iterator[Rehearse]:
    with warm_rehearsals([STACKS], gpu=CARD, quiet=True, figures_only=True) as rehearse_one:
        yield _once(rehearse_one, STACKS)


def _once(rehearse_one: Rehearse, entry: str) -> Rehearse:
    """Rehearse each thing once: many tests compare with the same program as it is."""
    results: dict[Any, Result] = {}

    def run(name: str, *arguments: str, measures: tuple[str, ...] | list[str] = (), **options: Any) -> Result:
        environment = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
        asked = (name, arguments, tuple(measures), tuple(options.items()), frozenset(environment.items()))
        if asked not in results:
            results[asked] = rehearse_one([entry, name, *arguments], measures=measures, **options)
        return results[asked]

    return run


@pytest.fixture
def rehearse(_warm: Rehearse) -> Rehearse:
    """rehearse("language_model", "16", measures=["fused-optimizer"]): one of the programs beside, with arguments."""
    return _warm


@pytest.fixture
def rehearse_stack(_warm_stacks: Rehearse) -> Rehearse:
    """The same for programs that import transformers, accelerate, lightning, peft or bitsandbytes."""
    return _warm_stacks


@pytest.fixture
def assert_same_bytes(rehearse: Rehearse) -> Callable[..., tuple[Result, Result]]:
    """assert_same_bytes("language_model", ["fused-optimizer"], "fused_by_hand"): equal to the byte, in every phase.

    Returns the result with the measure switched on, and that of the program as it is.
    """

    def check(
        name: str,
        measures: list[str],
        by_hand: str,
        *,
        arguments: tuple[str, ...] = (),
        rehearse: Rehearse = rehearse,
    ) -> tuple[Result, Result]:
        plain = rehearse(name, *arguments)
        switched = rehearse(name, *arguments, measures=measures)
        written = rehearse(by_hand, *arguments)
        for result in (plain, switched, written):
            assert result.ending.how in ("steady", "finished"), result.ending
        assert all(switched.measures.values()), switched.measures
        assert figures(switched) == figures(written)
        return switched, plain

    return check


def figures(result: Result) -> dict[str, Any]:
    """What has to be equal: the peaks of the run and of every phase."""
    return {
        "allocated": result.peak_allocated_bytes,
        "reserved": result.peak_reserved_bytes,
        "total": result.peak_total_bytes,
        "phases": result.phase_peaks,
    }

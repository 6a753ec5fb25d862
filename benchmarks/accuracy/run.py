"""Rehearses the rows that have no prediction yet, each program from one warm server."""

from __future__ import annotations

import importlib.metadata
import itertools
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from dryfit.rehearse.endings import OUT_OF_MEMORY, WHOLE
from dryfit.rehearse.result import Result
from dryfit.rehearse.total import NCCL, OUTSIDE, TAKEN
from dryfit.rehearse.warm import WarmRehearsals, warm_rehearsals

from . import predictions
from .predictions import Prediction, Predictions
from .rows import ALLOCATED, GROWTH, LAST_STEP, TOTAL, WORKLOADS, Row

_NOT_PYTORCHS = (TAKEN, OUTSIDE, NCCL)  # the first is what it has taken for certain
_KEEP_EACH = 5  # predictions are written after so many

Answer = tuple[Result, Result | None]
"""A rehearsal of a row's words, and of those before where growth was measured."""


def installed() -> str:
    """The version of torch that rehearsals run under."""
    return importlib.metadata.version("torch").partition("+")[0]


def predict(rows: Iterable[Row], *, rewrite: bool = False, jobs: int = 1) -> list[str]:
    """Rehearse rows under the installed torch and keep what came of them; gives the failures, one sentence each.

        predict(rows())

    Rows that have a prediction of the same words are left alone, unless all are to be rewritten. Rows of the same
    words on the same card are rehearsed once.
    """
    known = predictions.load(installed())
    wanted = [row for row in rows if rewrite or predictions.current(row, known) is None]
    by_program = itertools.groupby(sorted(wanted, key=lambda row: row.program), key=lambda row: row.program)
    kept = _Kept()
    for program, its_rows in by_program:
        with warm_rehearsals([str(WORKLOADS / program)], steps="all", quiet=True, observe=False) as rehearse_one:
            _predict_all(list(its_rows), rehearse_one, kept, jobs)
            if rehearse_one.why_cold:  # before the process is ended, which would be a reason too
                print(f"{program} was rehearsed cold: {rehearse_one.why_cold}", file=sys.stderr)
    kept.write()
    return kept.failures


def prediction_of(row: Row, result: Result, before: Result | None) -> Prediction:
    """What a rehearsal says of the row's metric.

    Raises:
        ValueError: the rehearsal neither came to its end nor ran out of memory, so it says nothing.
    """
    for each in (result, before):
        if each is not None and each.ending.how not in (*WHOLE, OUT_OF_MEMORY):
            raise ValueError(f"{row.id} ({row.said}): {each.ending.sentence}")
    low_bytes, expected_bytes, high_bytes = _range_of(row.metric, result)
    less_bytes = before.peak_reserved_bytes if before is not None else 0
    return Prediction(
        said=row.said,
        low_bytes=low_bytes - less_bytes,
        expected_bytes=expected_bytes - less_bytes,
        high_bytes=high_bytes - (0 if row.or_sooner else less_bytes),
        verdict=result.verdict,
        unknowns=sum(unknown.decides_size for unknown in result.unknowns),
        seconds=result.wall_seconds,
    )


def _range_of(metric: str, result: Result) -> tuple[int, int, int]:
    """The lowest, expected and highest bytes.

    Of what is reserved, all doubt of the total counts that is about what PyTorch takes. Tensors take more or less by
    workspaces alone.
    """
    if metric == TOTAL:
        low_bytes, expected_bytes, high_bytes = (
            result.peak_total_range_bytes[end] for end in ("low", "expected", "high")
        )
        return low_bytes, expected_bytes, high_bytes
    if metric in (ALLOCATED, LAST_STEP):
        bytes_ = result.peak_allocated_bytes if metric == ALLOCATED else result.step_peaks[-1].peak_allocated_bytes
        return bytes_ - result.workspaces.get("less_bytes", 0), bytes_, bytes_ + result.workspaces.get("more_bytes", 0)
    bytes_ = result.peak_reserved_bytes
    doubts = [part for part in result.total_parts if part.what not in _NOT_PYTORCHS]
    low_bytes = bytes_ + sum(part.low_bytes for part in doubts)
    high_bytes = bytes_ + sum(part.high_bytes for part in doubts)
    return low_bytes, bytes_ + sum(part.expected_bytes for part in doubts), high_bytes


@dataclass(slots=True)
class _Kept:
    """The predictions of this run."""

    predictions: Predictions = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, row: Row, answer: Answer) -> None:
        with self.lock:
            try:
                self.predictions[row.id] = found = prediction_of(row, *answer)
            except ValueError as error:
                self.failures.append(str(error))
                print(error, file=sys.stderr)
                return
            print(f"{row.id}: {found.expected_bytes / 2**20:.0f} MiB, {found.verdict} ({row.said})", file=sys.stderr)
            if len(self.predictions) % _KEEP_EACH == 0:
                self.write()

    def write(self) -> None:
        """Put them beside those that are there by now, for another run may have written some meanwhile."""
        if self.predictions:
            predictions.keep({**predictions.load(installed()), **self.predictions}, installed())


def _predict_all(rows: Sequence[Row], rehearse_one: WarmRehearsals, kept: _Kept, jobs: int) -> None:
    def answer(alike: Sequence[Row]) -> None:
        result = rehearse_one(alike[0].words, gpu=alike[0].card, **alike[0].world_options)
        befores: dict[str, Result] = {}
        for row in alike:
            if row.metric == GROWTH and row.before not in befores:
                options = {"gpu": row.card, "figures_only": True, **row.world_options}
                befores[row.before] = rehearse_one(row.words_before, **options)
            kept.add(row, (result, befores[row.before] if row.metric == GROWTH else None))

    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.arguments, row.card, row.played), []).append(row)
    _all(answer, list(groups.values()), jobs)


def _all(do: Callable[[Sequence[Row]], None], groups: Sequence[Sequence[Row]], jobs: int) -> None:
    with ThreadPoolExecutor(jobs, thread_name_prefix="accuracy") as pool:
        try:
            for future in [pool.submit(do, group) for group in groups]:
                future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise

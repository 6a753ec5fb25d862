"""A few quick rows, rehearsed: the committed predictions are what `dryfit run` says under the installed torch."""

from __future__ import annotations

import pytest
from benchmarks.accuracy import predictions, rows, run
from benchmarks.accuracy.rows import Row

from dryfit.rehearse.launch import rehearse

QUICK = ("xmem-x081", "xmem-x094", "xmem-x032-growth", "CS336-52")
BY_ID = {row.id: row for row in rows.rows()}


@pytest.mark.truth
@pytest.mark.parametrize("row", [BY_ID[name] for name in QUICK], ids=QUICK)
def test_a_row_gives_its_committed_prediction(row: Row) -> None:
    committed = predictions.current(row, predictions.load(run.installed()))
    if committed is None:
        versions = ", ".join(predictions.versions())
        pytest.skip(f"{row.id} has no prediction for torch {run.installed()}; there are some for {versions}")
    result = rehearse(row.words, gpu=row.card, steps="all", quiet=True, observe=False, **row.world_options)
    before = (
        rehearse(row.words_before, gpu=row.card, steps="all", quiet=True, figures_only=True) if row.before else None
    )
    made = run.prediction_of(row, result, before if row.metric == rows.GROWTH else None)
    assert (made.expected_bytes, made.verdict) == (committed.expected_bytes, committed.verdict)
    assert (made.low_bytes, made.high_bytes) == (committed.low_bytes, committed.high_bytes)

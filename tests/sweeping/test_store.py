"""The file of finished cells, and the table in each of its forms."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow.parquet
import pytest

from dryfit.errors import UsageError
from dryfit.search.cache import content_of
from dryfit.sweeping.found import Sweep
from dryfit.sweeping.row import Outcome, Row
from dryfit.sweeping.store import open_store

FITS = Outcome(verdict="fits", peak_total_bytes=1 << 30, steps=3, seconds=0.5)
FAILED = Outcome(error="ValueError", error_sentence="train.py failed: no,\n batch", seconds=0.1)


def content(file: str) -> str | None:
    return content_of(Path(file))


def test_what_is_kept_is_found_while_its_files_are_as_they_were(tmp_path: Path) -> None:
    module = tmp_path / "model.py"
    module.write_text("width = 1\n")
    with open_store(tmp_path / "rows.jsonl", content) as store:
        store.keep("a", "train.py batch 1", FITS, [str(module)])
        store.keep("b", "train.py batch 2", FAILED, [])
    with open_store(tmp_path / "rows.jsonl", content) as store:
        assert store.outcomes(["a", "b", "c"]) == {"a": FITS, "b": FAILED}
        assert store.outcomes(["b"]) == {"b": FAILED}
        module.write_text("width = 2\n")
        assert store.outcomes(["a", "b"]) == {"b": FAILED}


def test_a_line_that_was_cut_short_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with open_store(path, content) as store:
        store.keep("a", "one", FITS, [])
        store.keep("b", "two", FITS, [])
    path.write_bytes(path.read_bytes()[:-20])
    with open_store(path, content) as store:
        store.keep("c", "three", FAILED, [])
        assert store.outcomes("abc") == {"a": FITS, "c": FAILED}
    assert len(path.read_text().splitlines()) == 3


def test_two_sweeps_do_not_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    sentence = rf"^Another sweep is running that keeps its rows in {path}; wait for it, or name another file with"
    with open_store(path, content), pytest.raises(UsageError, match=sentence), open_store(path, content):
        pass
    with pytest.raises(UsageError, match=r"^The finished cells cannot be kept in /no/such/rows: No such file"):
        open_store(Path("/no/such/rows"), content).__enter__()


@pytest.fixture
def found() -> Sweep:
    rows = (
        Row(program="a", settings={"batch": 8, "dtype": "bf16"}, gpu="l4", outcome=FITS),
        Row(program="b", settings={"batch": "auto"}, world=8, measures="lora", outcome=FAILED),
    )
    return Sweep(rows=rows, rehearsed=2, kept=0, rows_file=None, backend="loky", wall_seconds=1.0)


def test_every_form_of_the_table_has_the_same_columns_and_rows(found: Sweep, tmp_path: Path) -> None:
    for end in ("csv", "jsonl", "json", "parquet"):
        found.save(tmp_path / f"table.{end}")
    table = found.table()
    assert list(table[0])[:6] == ["program", "batch", "dtype", "gpu", "world", "with"]
    assert table[1]["dtype"] is None
    assert json.loads((tmp_path / "table.json").read_text()) == table
    assert [json.loads(line) for line in (tmp_path / "table.jsonl").read_text().splitlines()] == table
    read = pyarrow.parquet.read_table(tmp_path / "table.parquet").to_pylist()
    assert read == [{**row, "batch": str(row["batch"])} for row in table]  # numbers and words are words
    with (tmp_path / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [list(row) for row in rows] == [list(row) for row in table]
    assert [(row["peak_total_bytes"], row["error_sentence"]) for row in rows] == [
        (str(1 << 30), ""), ("", FAILED.error_sentence),
    ]  # fmt: skip


def test_a_table_of_no_known_kind_is_refused(found: Sweep, tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"table\.xlsx does not end in one of \.csv, \.jsonl, \.json, \.parquet, which"
    ):
        found.save(tmp_path / "table.xlsx")


def test_failed_cells_make_the_exit_code_and_what_is_printed(found: Sweep) -> None:
    assert (found.failed, found.exit_code) == (1, 3)
    shown = found._repr_html_()
    assert "SWEPT 2 cells: 1 fits, 1 failed" in shown
    assert "ValueError      1  train.py failed: no, batch" in shown

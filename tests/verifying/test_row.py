"""Rows: written, read back, refused, and as Markdown."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from dryfit.errors import UsageError
from dryfit.verifying.comparison import OUT_OF_MEMORY, Figures, Side
from dryfit.verifying.real_card import RealCard
from dryfit.verifying.row import SCHEMA_VERSION, Row, append_row, markdown_table, read_rows

from .sides import CARD, figures, row, side, trained


def test_rows_are_added_and_read_back(tmp_path: Path) -> None:
    rows = [row(trained(3), trained(3)), row(trained(2, more=7), trained(2, outside=None))]
    for each in rows:
        append_row(each, tmp_path / "rows.jsonl")
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 2
    assert read_rows(tmp_path / "rows.jsonl") == rows


def test_a_newer_row_is_refused(tmp_path: Path) -> None:
    values = json.loads(row(trained(1), trained(1)).to_json()) | {"schema_version": SCHEMA_VERSION + 1}
    path = tmp_path / "rows.jsonl"
    path.write_text(f"\n{json.dumps(values)}\n")
    with pytest.raises(UsageError) as raised:
        read_rows(path)
    assert str(raised.value) == (
        f"Line 2 of {path} has schema version 2, and this dryfit knows up to 1; read it with the dryfit that wrote it, "
        "or a newer one."
    )


@pytest.mark.parametrize("line", ["{", "[]", "7", '{"schema_version": 1}', '{"schema_version": "x"}', '"text"'])
def test_what_is_no_row_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(line)
    with pytest.raises(UsageError, match=r"^Line 1 of .* is not a row of `dryfit verify`: "):
        read_rows(path)


def test_files_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.jsonl cannot be read: "):
        read_rows(tmp_path / "none.jsonl")
    with pytest.raises(UsageError, match=r"^The row could not be added to .*: Is a directory; choose another file\.$"):
        append_row(row(trained(1), trained(1)), tmp_path)


@pytest.mark.parametrize("kind", [Row, RealCard, Side, Figures])
def test_every_field_is_documented(kind: type) -> None:
    text = (Path(__file__).parents[2] / "docs" / "verify.md").read_text()
    assert [each.name for each in dataclasses.fields(kind) if f"`{each.name}`" not in text] == []


def test_as_markdown() -> None:
    ran_out = side(figures(0, "setup", 4, 8), outcome=OUT_OF_MEMORY, error_type="OutOfMemoryError")
    virtual = dataclasses.replace(CARD, is_virtual=True, driver=None)
    head, rule, first, second = markdown_table(
        [row(trained(3), trained(3, more=5)), row(ran_out, trained(1), card=virtual)]
    ).splitlines()
    assert head.count("|") == rule.count("|") == first.count("|") == second.count("|")
    assert first == (
        "| NVIDIA L4 | 550.54.15 | 2.6.0+cu124 | `train.py --batch 8` | 3 | ran | ran | 203.000 | 207.000 | +1.9704% "
        "| 300.000 | 305.000 | +1.6667% | 600.000 | 600.000 | 0 |"
    )
    assert second.startswith(
        "| NVIDIA L4 (virtual) | ? | 2.6.0+cu124 | `train.py --batch 8` | 0 | out of memory (OutOfMemoryError) | ran "
        "| 4.000 | 203.000 | "
    )
    assert second.endswith(" | ? | 600.000 | ? |")

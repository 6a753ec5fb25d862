"""docs/recording.md describes the format to other readers: its tables are complete, and its example runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dryfit.recording import columns, file, tables
from dryfit.recording.file import load, save
from dryfit.recording.model import BLOCK_STATES, KINDS

from .test_file import rewritten, small_recording, values_of

TEXT = (Path(__file__).parents[2] / "docs" / "recording.md").read_text()
TYPES = {"B": "u8", "H": "u16", "I": "u32", "Q": "u64", "q": "i64"}


def row_of(name: str) -> str:
    """The row of the table that begins with a name."""
    (row,) = re.findall(rf"^\| `(?:devices/N/)?{name}` .*$", TEXT, re.MULTILINE)
    return row


@pytest.mark.parametrize(("name", "typecode"), file._EVENTS.items())
def test_columns_of_events_have_their_type(name: str, typecode: str) -> None:
    assert row_of(name).startswith(f"| `{name}` | {TYPES[typecode]} |")


@pytest.mark.parametrize("table", tables.TABLES)
def test_every_column_of_a_table_is_named(table: str) -> None:
    row = row_of(f"{table}/")
    for column, kind in tables.TABLES[table].items():
        assert f"`{column}`" in row
        assert kind in row


def test_numbers_and_names_are_those_of_the_code() -> None:
    assert ", ".join(f"{number} {kind}" for number, kind in enumerate(KINDS)) in row_of("kind")
    assert ", ".join(BLOCK_STATES) in row_of("blocks/")
    assert f"`version` | {columns.VERSION} |" in TEXT
    assert f"`{columns.HEADER}`" in TEXT
    assert f"first {columns.FIRST_BYTES} bytes" in TEXT
    for limit in (columns.MOST_ROWS, tables.MOST_ROWS):
        assert f"{limit:,}" in TEXT
    assert all(f"`{name}`" in row_of("about") for name in file._ABOUT)
    assert all(f"`{name}`" in row_of("devices") for name in file._FIELDS)


def test_the_example_reads_what_was_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save(small_recording(), tmp_path / "run.dryfit")
    monkeypatch.chdir(tmp_path)
    example = TEXT.partition("```python\n")[2].partition("```")[0]
    exec(compile(example, "docs/recording.md", "exec"), {})
    labels = [label for device in small_recording().devices for label in device.labels]
    assert labels
    assert capsys.readouterr().out == "".join(f"512 {label.owner} {label.name}\n" for label in labels)


def test_columns_and_fields_that_were_added_are_passed_over(tmp_path: Path) -> None:
    """As the document promises of files of one version."""

    def add(header: dict[str, Any]) -> None:
        header["weather"] = header["about"]["weather"] = header["devices"][0]["weather"] = "fine"
        header["columns"]["devices/0/events/thread"] = {"type": "u8", "count": 40, "differences": False}

    path = tmp_path / "run.dryfit"
    save(small_recording(), path)
    rewritten(path, {"devices/0/events/thread": bytes(40)}, add)
    newer, known = values_of(load(path)), values_of(small_recording())
    assert newer.pop("about") == {**known.pop("about"), "weather": "fine"}
    assert newer == known

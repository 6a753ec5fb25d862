"""Saved values: read back by their fields' types, and refused in prose where they are something else."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dryfit.errors import UsageError
from dryfit.plain import from_plain, to_plain
from dryfit.saved import read_saved


@dataclass(frozen=True)
class Inner:
    value: int
    share: float = 0.0


@dataclass(frozen=True)
class Outer:
    name: str
    inner: Inner | None = None
    many: list[Inner] = field(default_factory=list)
    points: tuple[tuple[int, int], ...] = ()
    by_name: dict[str, Inner] = field(default_factory=dict)
    schema_version: int = 1


OUTER = Outer("a", Inner(1, 0.5), [Inner(2)], ((1, 2), (3, 4)), {"b": Inner(3)})


def test_a_value_comes_back_as_it_was_through_json() -> None:
    assert from_plain(Outer, json.loads(json.dumps(to_plain(OUTER)))) == OUTER


def test_a_whole_number_stands_for_a_float_and_unknown_fields_are_skipped() -> None:
    assert from_plain(Inner, {"value": 1, "share": 2, "newer": 3}) == Inner(1, 2.0)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"name": 1}, "Outer.name was expected to be of type str, and 1 found"),
        ({"name": "a", "inner": {"value": True}}, "Inner.value was expected to be of type int, and True found"),
        ({"name": "a", "many": [1]}, "Inner was expected, and int found"),
        ({"name": "a", "points": [[1]]}, r"Outer.points was expected to have 2 members, and \[1\] found"),
        ({"name": "a", "by_name": []}, r"Outer.by_name was expected to be of type dict, and \[\] found"),
    ],
)
def test_a_value_of_another_type_is_refused(values: dict[str, object], sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence):
        from_plain(Outer, values)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema_version": "1"}', '{"schema_version": 1}', "[" * 100_000])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(UsageError, match=r"x\.json is not a saved outer"):
        read_saved(Outer, tmp_path / "x.json", what="outer", newest=1)


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"schema_version": 2, "name": "a"}')
    with pytest.raises(UsageError, match="has schema version 2, and this dryfit knows up to 1; read it"):
        read_saved(Outer, tmp_path / "x.json", what="outer", newest=1)

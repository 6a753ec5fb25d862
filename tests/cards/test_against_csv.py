"""The catalogue says what the collected figures say, where they lie beside the checkout."""

from __future__ import annotations

import csv
import statistics
from collections import defaultdict
from pathlib import Path

import pytest

from dryfit.cards import all_cards
from dryfit.units import MIB

COLLECTED = Path(__file__).parents[2].parent / "shared" / "truth" / "cards.csv"

Rows = dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def rows() -> Rows:
    if not COLLECTED.exists():
        pytest.skip("the collected figures (shared/truth/cards.csv) are not beside this checkout")
    with COLLECTED.open(encoding="utf-8", newline="") as lines:
        return {row["key"]: row for row in csv.DictReader(lines)}


def test_the_same_cards(rows: Rows) -> None:
    assert [card.key for card in all_cards()] == list(rows)


def test_the_same_figures(rows: Rows) -> None:
    for card in all_cards():
        row = rows[card.key]
        assert card.architecture == row["arch"]
        assert card.sm == round(10 * float(row["sm"]))
        assert card.sm_count == int(row["sm_count"])
        assert card.max_threads_per_sm == int(row["max_threads_per_sm"])
        if row["l2_bytes"]:
            assert card.l2_bytes == int(row["l2_bytes"])
        if row["torch_total_bytes"]:
            assert card.total_bytes == int(row["torch_total_bytes"])
        elif row["torch_total_mib"]:
            assert card.total_bytes == int(row["torch_total_mib"]) * MIB
        smi_total_bytes = int(row["smi_total_mib"]) * MIB if row["smi_total_mib"] else None
        assert card.smi_total_bytes == smi_total_bytes
        measured_bytes = int(row["outside_median_mib"]) * MIB if row["outside_median_mib"] else None
        assert card.outside_measured_bytes == measured_bytes
        assert card.outside_points == int(row["outside_points"] or 0)
        assert card.outside_bytes / MIB == pytest.approx(float(row["outside_formula_mib"]), abs=1.2)
        if row["usable_default_mib"]:
            assert card.usable_bytes / MIB == pytest.approx(float(row["usable_default_mib"]), abs=2)


def test_what_was_not_looked_up_or_not_found_is_called_unverified(rows: Rows) -> None:
    for card in all_cards():
        row = rows[card.key]
        doubted = {field for field in ("sm_count", "l2_bytes") if field in row["unverified_fields"].split(";")}
        doubted |= {"l2_bytes"} if not row["l2_bytes"] else set()
        doubted |= {"total_bytes"} if not row["torch_total_mib"] else set()
        doubted |= {"sm_count", "l2_bytes"} if not row["spec_source"] else set()
        assert set(card.unverified) == doubted, card.key


def test_derived_totals_take_off_the_median_difference(rows: Rows) -> None:
    differences = defaultdict(list)
    for row in rows.values():
        whole = row["smi_total_mib"] or row["windows_torch_total_mib"]
        if whole and row["torch_total_mib"]:
            differences[row["sm"]].append(int(whole) - int(row["torch_total_mib"]))
    checked = 0
    for card in all_cards():
        derivation = card.sources["total_bytes"][0]
        if derivation.startswith("derived: ") and " less " in derivation:
            row = rows[card.key]
            whole, less = (int(word) for word in derivation.split() if word.isdigit())
            assert less == round(statistics.median(differences[row["sm"]]))
            shown = row["smi_total_mib"] or row["windows_torch_total_mib"]
            assert str(whole) == shown if shown else "data sheet" in derivation
            checked += 1
    assert checked == 9

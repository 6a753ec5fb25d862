"""The tables: how they are written, and that those committed are of the committed figures."""

from __future__ import annotations

import pytest
from benchmarks.accuracy import misses, predictions, rows, table

from .made import prediction, row

ROWS = rows.rows()


def lines_of(text: str) -> list[str]:
    return text.splitlines()[2:]


def test_a_family_has_one_line_for_each_version_with_its_errors_and_those_of_others() -> None:
    of = [row(id=name, peers={"xMem": 1200}) for name in "abc"]
    by_version = {
        "2.6.0": {"a": prediction(of[0], 1000), "b": prediction(of[1], 1010), "c": prediction(of[2], 1100)},
        "2.14.1": {"a": prediction(of[0], 980)},
    }
    assert lines_of(table.families(of, by_version)) == [
        "| family | 3 | 2.6.0 | 2.6.0 | 1.00% | 8.20% | 10.00% | 33% | xMem 20.00% / 20.00% |",
        "| family | 1 | 2.6.0 | 2.14.1 | 2.00% | 2.00% | 2.00% | 0% | xMem 20.00% / 20.00% |",
    ]


def test_rows_of_one_run_are_one_answer_to_whether_it_fits() -> None:
    of = [row(id="a"), row(id="b", family="other", metric="allocated"), row(id="c", metric="does_not_fit", source="x")]
    by_version = {"2.6.0": {each.id: prediction(each, 1000) for each in of}}
    assert lines_of(table.brackets(of, by_version)) == ["| family | 1 | 1 | 1 | 0 | 1 | 0 |"]


def test_a_miss_is_listed_with_its_explanation() -> None:
    of = [row(id="a"), row(id="b")]
    by_version = {"2.6.0": {"a": prediction(of[0], 2000), "b": prediction(of[1], 1000)}}
    (line,) = lines_of(table.missed(of, by_version, {"a": "Because."}))
    assert line == "| a: `xmem_language.py gpt2 SGD 1` on l4 | 0 | 0 | +100.00% | Because. |"


def test_rows_of_several_cards_have_a_table_with_what_they_come_to() -> None:
    mib = 1 << 20
    of = [
        row(id=name, world=8, ranks="0", metric="allocated_in_last_step", measured_bytes=100 * mib) for name in "ab"
    ] + [row(id="alone", measured_bytes=100 * mib)]
    by_version = {"2.6.0": {each.id: prediction(each, n * mib) for each, n in zip(of, (101, 96, 50), strict=True)}}
    said = "`xmem_language.py gpt2 SGD 1` | 0 of 8 | 2.6.0 | allocated in last step | 100"
    assert lines_of(table.several_cards(of, by_version)) == [
        f"| a: {said} | 101 | +1.00% |",
        f"| b: {said} | 96 | -4.00% |",
        "| 2 rows: median 2.50%, largest 4.00% | | | | | | |",
    ]


def test_what_does_not_count_is_listed_and_is_in_no_figure() -> None:
    of = [row(id="a", skip="The author is not sure."), row(id="b"), row(id="c")]
    by_version = {"2.6.0": {"a": prediction(of[0], 2000), "b": prediction(of[1], 1000)}}
    assert lines_of(table.not_counted(of, by_version)) == [
        "| family | 1 | The author is not sure. |",
        "| family | 1 | not rehearsed yet |",
    ]
    assert lines_of(table.families(of, by_version))[0].startswith("| family | 1 | 2.6.0 | 2.6.0 | 0.00%")
    assert len(lines_of(table.every_row(of, by_version))) == 3


def test_only_what_is_between_the_markers_changes() -> None:
    text = "above\n<!-- table: t -->\nold\n<!-- end -->\nbelow\n"
    assert table.with_tables(text, {"t": "new \\1\n"}, "d.md") == text.replace("old", "new \\1")
    with pytest.raises(ValueError, match=r"d\.md has 0 places marked `<!-- table: u -->`, and should have one"):
        table.with_tables(text, {"u": "new"}, "d.md")


def test_the_committed_pages_are_those_of_the_committed_figures() -> None:
    for path, text in table.documents(ROWS).items():
        assert path.read_text() == text, f"{path.name} is not up to date; run `python -m benchmarks.accuracy --tables`."


def test_every_miss_has_an_explanation_and_every_explanation_a_miss() -> None:
    found, known = table.compared(ROWS, table.predicted()), misses.explanations()
    assert misses.without_explanation(found, known) == [], f"say why in {misses.MISSES.name}"
    assert misses.without_miss(found, known) == [], f"{misses.MISSES.name} explains what is no miss any more"


def test_there_are_no_predictions_of_other_words() -> None:
    for version in predictions.versions():
        assert predictions.left_over(ROWS, predictions.load(version)) == [], f"torch {version}"

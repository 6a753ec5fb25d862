"""The table of measures in docs/measures.md.

python -m tests.measures.table              writes the table into docs/measures.md
"""

from __future__ import annotations

from pathlib import Path

from dryfit.measures.catalogue import all_measures
from dryfit.measures.facts import Facts
from dryfit.measures.measure import METHOD, NOTHING, PRECISION, Measure

PAGE = Path(__file__).parents[2] / "docs" / "measures.md"
_BEGIN, _END = "<!-- measures: written by python -m tests.measures.table -->", "<!-- end of measures -->"
_CHANGES = {NOTHING: "nothing", PRECISION: "precision", METHOD: "method"}


def table() -> str:
    """All measures, in the order of the catalogue."""
    lines = ["| measure | what it does | changes | needs |", "| --- | --- | --- | --- |"]
    return "\n".join([*lines, *map(_row, all_measures())])


def _row(measure: Measure) -> str:
    cells = (f"`{measure.name}`", measure.what, _CHANGES[measure.changes(Facts())], measure.needs)
    return f"| {' | '.join(cells)} |"


def written() -> str:
    """The table that the page has now."""
    return PAGE.read_text(encoding="utf-8").partition(f"{_BEGIN}\n")[2].partition(f"\n{_END}")[0]


def main() -> None:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    after = rest.partition(_END)[2]
    PAGE.write_text(f"{before}{_BEGIN}\n{table()}\n{_END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()

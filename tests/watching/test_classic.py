"""The two classic mistakes are found in the source; `test_leaks.py` finds them in the same programs when they run."""

from __future__ import annotations

from pathlib import Path

import pytest

from dryfit.linting import lint

LEAKY = Path(__file__).parent / "programs" / "leaky"


@pytest.mark.parametrize(
    ("program", "codes"),
    [
        ("loss_summed.py", ["DF101"]),
        ("evaluation_with_graph.py", ["DF201"]),
        ("validation_loss_summed.py", ["DF101", "DF201"]),
    ],
)
def test_lint_finds_what_the_run_finds(program: str, codes: list[str]) -> None:
    findings = lint([LEAKY / program]).findings
    assert sorted(finding.code for finding in findings) == codes
    lines = (LEAKY / program).read_text().splitlines()
    marked = [number for number, line in enumerate(lines, start=1) if line.endswith("# <- holder")]
    assert marked[0] in [finding.place.line for finding in findings if finding.place]

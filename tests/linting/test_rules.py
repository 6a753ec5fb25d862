"""Each rule on programs with mistakes, marked `# <- DF101` on their lines, and on their twins without."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dryfit.findings import RULES
from dryfit.linting import lint_source
from dryfit.linting.rules import CHECKS

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))
MARK = re.compile(r"# <- (?P<codes>DF\d{3}( DF\d{3})*)$")


def marked(source: str) -> set[tuple[int, str]]:
    return {
        (number, code)
        for number, line in enumerate(source.splitlines(), start=1)
        if (mark := MARK.search(line))
        for code in mark["codes"].split()
    }


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_finds_the_marked_lines_and_no_others(program: Path) -> None:
    source = program.read_text()
    found = {(each.place.line, each.code) for each in lint_source(source, program.name) if each.place}
    assert found == marked(source)


def test_clean_programs_have_no_marks_and_the_others_have() -> None:
    for program in PROGRAMS:
        assert bool(marked(program.read_text())) == program.stem.endswith("_mistakes"), program.name


def test_every_rule_has_mistakes_and_a_clean_twin() -> None:
    names = {program.stem for program in PROGRAMS}
    for code in CHECKS:
        assert {f"{code.lower()}_mistakes", f"{code.lower()}_clean"} <= names


def test_every_rule_that_source_can_show_is_checked() -> None:
    assert set(CHECKS) == {rule.code for rule in RULES if "lint" in rule.seen_by}

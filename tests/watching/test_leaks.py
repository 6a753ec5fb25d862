"""Every kind of leak is found in a whole training program, by its holder's name and line; in sound ones nothing is.

The first line of a leaky program says what is to be found: the code, the names that the holder may have (or * where
there is none), and whose memory it is. The line is the one, or one of those, that ends in `# <- holder`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dryfit.findings import Finding

PROGRAMS = Path(__file__).parent / "programs"
LEAKY = sorted((PROGRAMS / "leaky").glob("*.py"))
CLEAN = sorted((PROGRAMS / "clean").glob("*.py"))


@dataclass(frozen=True)
class Expected:
    code: str
    holders: set[str]
    memory: set[str]
    also: set[str]
    places: set[tuple[str, int]]


def expected_of(program: Path) -> Expected:
    """What the first line of a program says, and the lines that are marked in it or in what it imports."""
    first = program.read_text().splitlines()[0]
    said = re.fullmatch(r"# (DF\d+) (.+), ([a-z ]+)(?:; also ([DF\d, ]+))?", first)
    assert said, first
    of_another = re.compile(rf"# <- holder of {program.stem}$")
    marked = {
        (file.name, number)
        for file in (program, PROGRAMS / "keeping.py")
        for number, line in enumerate(file.read_text().splitlines(), start=1)
        if of_another.search(line) or (file == program and line.endswith("# <- holder"))
    }
    assert marked, f"no line of {program.name} is marked"
    return Expected(
        code=said[1],
        holders=set(said[2].split(" | ")),
        memory=set(said[3].split(" or ")),
        also=set((said[4] or "").split(", ")) - {""},
        places=marked,
    )


def in_short(findings: list[Finding]) -> list[tuple[str, str, str]]:
    return [
        (each.code, each.evidence.holder, f"{Path(each.place.file).name}:{each.place.line}" if each.place else "")
        for each in findings
    ]


@pytest.mark.parametrize("program", LEAKY, ids=lambda path: path.stem)
def test_a_leak_is_found_by_its_holder_and_line(rehearse: Any, program: Path) -> None:
    expected = expected_of(program)
    result = rehearse(program)
    assert result.ending.how in ("steady", "most steps", "finished"), result.ending
    assert not [note for note in result.notes if "our fault" in note], result.notes
    others = [each for each in result.findings if each.code != expected.code]
    assert {each.code for each in others} <= expected.also, in_short(result.findings)
    [found] = [each for each in result.findings if each.code == expected.code] or pytest.fail(
        f"{expected.code} was not found, but {in_short(result.findings)}"
    )
    assert found.place is not None
    assert (Path(found.place.file).name, found.place.line) in expected.places, in_short([found])
    assert "*" in expected.holders or found.evidence.holder in expected.holders, in_short([found])
    assert found.evidence.memory in expected.memory
    assert found.place.text.strip() in Path(found.place.file).read_text()
    assert found.claim.endswith(".") and found.advice.endswith(".")


@pytest.mark.parametrize("program", CLEAN, ids=lambda path: path.stem)
def test_nothing_is_found_in_a_sound_program(rehearse: Any, program: Path) -> None:
    result = rehearse(program, watch=True)
    assert result.ending.how in ("steady", "most steps", "finished"), result.ending
    assert not [note for note in result.notes if "our fault" in note], result.notes
    assert in_short(result.findings) == []

"""The findings of `dryfit lint` in public programs, each judged by hand, and the tables of docs/lint.md made of them.

    public_scripts.csv        the sixty training scripts, chosen before any was linted
    public_repositories.csv   the repositories of the other sets, with their commits
    judgements.csv            each finding, with what its first run and the rules of today say: true, false, or nothing
    not_found.csv             mistakes in the sixty that were noted before lint ran, and that it does not find

`python -m tests.linting.judged` writes the tables anew.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
DOCUMENT = HERE.parents[1] / "docs" / "lint.md"
SIXTY = "sixty"
TRUE, FALSE = "true", "false"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A file of a public repository."""

    repo: str
    path: str
    commit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A finding and its verdicts: `first` when lint saw its set first, `now` with the rules of today; "" is no finding.

    `line` is a number, in a notebook `cell 7:40`.
    """

    set: str
    repo: str
    path: str
    line: str
    code: str
    first: str
    now: str
    why: str


def scripts() -> list[Script]:
    return [Script(**row) for row in _rows("public_scripts.csv")]


def repositories() -> dict[str, list[tuple[str, str]]]:
    """The repositories of each set but the sixty, with their commits."""
    found: dict[str, list[tuple[str, str]]] = {}
    for row in _rows("public_repositories.csv"):
        found.setdefault(row["set"], []).append((row["repo"], row["commit"]))
    return found


def judgements() -> list[Judgement]:
    return [Judgement(**row) for row in _rows("judgements.csv")]


def precision(verdicts: Iterable[str]) -> str:
    """How many of the findings are true: `16 of 19, 84.2 %`."""
    given = [each for each in verdicts if each]
    right = given.count(TRUE)
    return f"{right} of {len(given)}, {right / len(given):.1%}".replace("%", " %") if given else "none"


def precision_table() -> str:
    lines = [
        "| set | repositories | true when first seen | without DF404 | true now |\n| --- | ---: | --- | --- | --- |\n"
    ]
    counts = {SIXTY: len({each.repo for each in scripts()})} | {
        name: len(each) for name, each in repositories().items()
    }
    for name, count in counts.items():
        of_set = [each for each in judgements() if each.set == name]
        others = precision(each.first for each in of_set if each.code != "DF404")
        first, now = precision(each.first for each in of_set), precision(each.now for each in of_set)
        lines.append(f"| {name} | {count} | {first} | {others} | {now} |\n")
    fresh = [each for each in judgements() if each.set.startswith("fresh")]
    count = sum(count for name, count in counts.items() if name.startswith("fresh"))
    first, now = precision(each.first for each in fresh), precision(each.now for each in fresh)
    others = precision(each.first for each in fresh if each.code != "DF404")
    lines.append(f"| fresh, all | {count} | {first} | {others} | {now} |\n")
    return "".join(lines)


def by_rule_table() -> str:
    """First runs on the fresh sets, for each rule that found something."""
    lines = ["| rule | true when first seen |\n| --- | --- |\n"]
    fresh = [each for each in judgements() if each.set.startswith("fresh") and each.first]
    for code in sorted({each.code for each in fresh}):
        lines.append(f"| {code} | {precision(each.first for each in fresh if each.code == code)} |\n")
    return "".join(lines)


def scripts_table() -> str:
    lines = ["| repository | script | findings | not found |\n| --- | --- | --- | --- |\n"]
    missed = _rows("not_found.csv")
    for script in scripts():
        here = [each for each in judgements() if (each.set, each.repo, each.path) == (SIXTY, script.repo, script.path)]
        findings = ", ".join(f"{each.code}:{each.line} {_verdict(each)}" for each in here)
        not_found = "; ".join(
            f"{each['line']}: {each['what']}"
            for each in missed
            if (each["repo"], each["path"]) == (script.repo, script.path)
        )
        lines.append(f"| {script.repo} | {script.path} | {findings} | {not_found} |\n")
    return "".join(lines)


def with_tables(text: str) -> str:
    """The document with what lies between its markers replaced."""
    tables = {
        "precision": precision_table(),
        "by rule": by_rule_table(),
        "sixty scripts": scripts_table(),
    }
    for name, table in tables.items():
        start, end = f"<!-- table: {name} -->\n", "<!-- end -->"
        text, count = re.subn(
            re.escape(start) + r".*?" + end, lambda _, new=start + table + end: new, text, flags=re.DOTALL
        )
        if count != 1:
            raise ValueError(f"{DOCUMENT.name} has {count} places marked `{start.strip()}`, and should have one.")
    return text


def _verdict(judgement: Judgement) -> str:
    if judgement.first and not judgement.now:
        return f"{judgement.first} at first, gone now"
    return (
        judgement.now if judgement.first in (judgement.now, "") else f"{judgement.first} at first, {judgement.now} now"
    )


def _rows(name: str) -> list[dict[str, str]]:
    with (HERE / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit("usage: python -m tests.linting.judged")
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")

"""The tables of rules in the docs are those of the catalogue; `--rewrite-goldens` writes them."""

from __future__ import annotations

import re
from pathlib import Path

from dryfit.findings import RULES

DOCS = Path(__file__).parents[2] / "docs"
PAGES = "../src/dryfit/findings/pages"
TABLE = re.compile(r"<!-- rules: (\w+) -->\n(.*?)<!-- end -->", re.DOTALL)


def table(seen_by: str) -> str:
    rows = [
        f"| [{rule.code}]({PAGES}/{rule.code}.md) | {rule.name} | {rule.title} |"
        for rule in RULES
        if seen_by in rule.seen_by
    ]
    return "\n".join(["| code | name | |", "| --- | --- | --- |", *rows, ""])


def test_the_tables_are_those_of_the_catalogue(rewrite_goldens: bool) -> None:
    seen = []
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        expected = TABLE.sub(lambda at: f"<!-- rules: {at[1]} -->\n{table(at[1])}<!-- end -->", text)
        seen += [at[1] for at in TABLE.finditer(text)]
        if rewrite_goldens:
            page.write_text(expected, encoding="utf-8")
        else:
            assert text == expected, f"{page.name}: `pytest {Path(__file__).name} --rewrite-goldens` writes the table"
    assert sorted(seen) == ["explain", "lint", "watch"]

"""Rules and their pages, and findings as values."""

from __future__ import annotations

import ast
import json
import re
import textwrap

import pytest

from dryfit.findings import RULES, Evidence, Finding, Place, Rule, rule_of
from dryfit.findings.pages import page_of

all_rules = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)


def test_codes_and_names_are_unique_and_sorted() -> None:
    codes = [rule.code for rule in RULES]
    assert codes == sorted(set(codes))
    assert len({rule.name for rule in RULES}) == len(RULES)


@all_rules
def test_a_rule_is_well_formed(rule: Rule) -> None:
    assert re.fullmatch(r"DF[1-5]\d\d", rule.code)
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", rule.name)
    assert rule.title.endswith(".")
    assert rule.seen_by <= {"lint", "watch", "explain"}
    assert rule.seen_by


@all_rules
def test_a_rule_is_found_by_its_code_and_its_name(rule: Rule) -> None:
    assert rule_of(rule.code) is rule_of(rule.code.lower()) is rule_of(rule.name) is rule


def test_no_rule_of_another_name() -> None:
    assert rule_of("DF999") is None
    assert rule_of("") is None


@all_rules
def test_a_rule_has_a_page(rule: Rule) -> None:
    lines = page_of(rule).splitlines()
    assert lines[0] == f"# {rule.code} {rule.name}"
    assert lines[2] == rule.title
    headings = [line for line in lines if line.startswith("## ")]
    of_errors = ["## How it looks", "## What it means", "## What to do"]
    assert headings == (of_errors if rule.code >= "DF5" else ["## What it costs", "## Instead", "## When it is none"])
    assert all(len(line) <= 120 for line in lines)


@all_rules
def test_the_programs_on_a_page_are_python(rule: Rule) -> None:
    for program in re.findall(r"```python\n(.*?)```", page_of(rule), re.DOTALL):
        ast.parse(textwrap.dedent(program))


def test_a_finding_outlives_json() -> None:
    finding = Finding(
        code="DF101",
        claim="total_loss keeps the graph of every step.",
        advice="Add loss.item() instead.",
        place=Place(file="train.py", line=41, column=9, text="total_loss += loss"),
        more_places=(Place(file="train.py", line=40),),
        evidence=Evidence(
            memory="host", bytes_per_step=200, holder="total_loss", chain=("a", "b"), numbers={"nodes": 3}
        ),
    )
    assert Finding.from_dict(json.loads(json.dumps(finding.to_dict()))) == finding

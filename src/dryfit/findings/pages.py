"""The page of each rule: what it is, what it costs, what to write instead, and when it is none."""

from __future__ import annotations

from importlib.resources import files

from dryfit.findings.rules import Rule


def page_of(rule: Rule) -> str:
    """The rule's page, in Markdown; `dryfit lint --explain DF101` prints it.

    >>> from dryfit.findings import RULES
    >>> page_of(RULES[0]).splitlines()[0]
    '# DF101 loss-kept-with-graph'
    """
    return (files("dryfit.findings") / "pages" / f"{rule.code}.md").read_text(encoding="utf-8")

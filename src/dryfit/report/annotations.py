"""Findings as annotations of GitHub Actions: lines that its log turns into notes beside the code."""

from __future__ import annotations

from dryfit.findings import Finding
from dryfit.findings.finding import CELL
from dryfit.places import as_seen_from_here


def annotation(finding: Finding) -> str:
    """One workflow command for one finding.

    >>> from dryfit.findings import Place
    >>> place = Place(file="train.py", line=41, column=9)
    >>> annotation(Finding(code="DF101", claim="The sum keeps graphs.", advice="Add numbers.", place=place))
    '::warning title=DF101 loss-kept-with-graph,file=train.py,line=41,col=9::The sum keeps graphs. Add numbers.'
    """
    properties = {"title": finding.title}
    if place := finding.place:
        properties |= {"file": as_seen_from_here(place.file.partition(CELL)[0]), "line": str(place.line)}
        more = {"endLine": place.end_line, "col": place.column, "endColumn": place.end_column}
        properties |= {name: str(value) for name, value in more.items() if value}
    given = ",".join(f"{name}={_escaped(value, of_property=True)}" for name, value in properties.items())
    return f"::warning {given}::{_escaped(f'{finding.claim} {finding.advice}')}"


def problem_annotation(problem: str) -> str:
    """A workflow command for a file that could not be read."""
    return f"::error title=dryfit lint::{_escaped(problem)}"


def _escaped(text: str, *, of_property: bool = False) -> str:
    """As https://github.com/actions/toolkit (packages/core/src/command.ts) has it."""
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if of_property else text

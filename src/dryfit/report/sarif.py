"""Findings as SARIF 2.1.0, which code hosts and editors read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dryfit import __version__
from dryfit.findings import RULES, Finding, Place
from dryfit.findings.finding import CELL
from dryfit.findings.pages import page_of
from dryfit.places import as_seen_from_here

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def to_sarif(findings: Sequence[Finding], problems: Sequence[str] = ()) -> dict[str, Any]:
    """One run of `dryfit lint`, with its rules and their pages; `problems` are files that could not be read.

    Paths are relative to the current folder where they lie in it. Columns count characters, as Python does.
    """
    rules = [rule for rule in RULES if any(finding.code == rule.code for finding in findings)]
    index = {rule.code: at for at, rule in enumerate(rules)}
    driver = {
        "name": "dryfit",
        "version": __version__,
        "rules": [
            {
                "id": rule.code,
                "name": rule.name,
                "shortDescription": {"text": rule.title},
                "help": {"text": page_of(rule), "markdown": page_of(rule)},
            }
            for rule in rules
        ],
    }
    notifications = [{"level": "error", "message": {"text": problem}} for problem in problems]
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": not problems, "toolExecutionNotifications": notifications}],
        "results": [_result(finding, index[finding.code]) for finding in findings],
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _result(finding: Finding, rule_index: int) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": rule_index,
        "level": "warning",
        "message": {"text": f"{finding.claim} {finding.advice}"},
        "locations": [] if finding.place is None else [_location(finding.place)],
    }
    if finding.more_places:
        result["relatedLocations"] = [_location(place) for place in finding.more_places]
    return result


def _location(place: Place) -> dict[str, Any]:
    file, _, cell = place.file.partition(CELL)
    path = Path(as_seen_from_here(file))
    region = {"startLine": place.line}
    for name, value in (
        ("startColumn", place.column),
        ("endLine", place.end_line),
        ("endColumn", place.end_column),
    ):
        if value:
            region[name] = value
    artifact = {"uri": path.as_uri() if path.is_absolute() else quote(path.as_posix())}
    location: dict[str, Any] = {"physicalLocation": {"artifactLocation": artifact, "region": region}}
    if cell:  # its lines are the cell's, which SARIF has no word for
        location["message"] = {"text": f"in cell {cell}"}
    return location

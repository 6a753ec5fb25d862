"""Findings of the source for other programs: SARIF, and annotations of GitHub Actions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dryfit.findings import Finding, Place
from dryfit.report.annotations import annotation, problem_annotation
from dryfit.report.sarif import to_sarif


def finding(file: str = "train.py", **place: int) -> Finding:
    return Finding(
        code="DF101",
        claim="total_loss keeps the graph of every step.",
        advice="Add loss.item().",
        place=Place(file=file, line=41, **place),
        more_places=(Place(file=file, line=40),),
    )


def test_sarif_has_the_rule_once_with_its_page_and_each_result() -> None:
    log = to_sarif([finding(column=9, end_line=41, end_column=27), finding()])
    (run,) = log["runs"]
    assert log["version"] == "2.1.0"
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["DF101"]
    assert run["tool"]["driver"]["rules"][0]["help"]["markdown"].startswith("# DF101 loss-kept-with-graph")
    first, second = run["results"]
    assert (first["ruleId"], first["ruleIndex"], first["level"]) == ("DF101", 0, "warning")
    assert first["message"]["text"] == "total_loss keeps the graph of every step. Add loss.item()."
    region = {"startLine": 41, "startColumn": 9, "endLine": 41, "endColumn": 27}
    assert first["locations"][0]["physicalLocation"] == {"artifactLocation": {"uri": "train.py"}, "region": region}
    assert first["relatedLocations"][0]["physicalLocation"]["region"] == {"startLine": 40}
    assert second["locations"][0]["physicalLocation"]["region"] == {"startLine": 41}
    assert run["invocations"] == [{"executionSuccessful": True, "toolExecutionNotifications": []}]
    json.dumps(log)


def test_sarif_says_what_could_not_be_read() -> None:
    (run,) = to_sarif([], ["old.py is no Python 3: line 7."])["runs"]
    assert run["results"] == []
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is False
    assert invocation["toolExecutionNotifications"][0]["message"]["text"] == "old.py is no Python 3: line 7."


def test_sarif_paths_are_uris(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)

    def uri(file: str) -> str:
        (run,) = to_sarif([finding(file)])["runs"]
        found: str = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        return found

    assert uri("my scripts/train#1.py") == "my%20scripts/train%231.py"
    assert uri(str(tmp_path / "train.py")) == "train.py"
    assert uri("/elsewhere/train.py") == "file:///elsewhere/train.py"


def test_a_place_in_a_notebook_is_the_notebook_s(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (run,) = to_sarif([finding("train.ipynb:cell 3")])["runs"]
    location = run["results"][0]["locations"][0]
    assert location["physicalLocation"]["artifactLocation"] == {"uri": "train.ipynb"}
    assert location["message"] == {"text": "in cell 3"}
    assert ",file=train.ipynb,line=41::" in annotation(finding("train.ipynb:cell 3"))


def test_a_finding_without_a_place_has_no_location() -> None:
    (run,) = to_sarif([Finding(code="DF501", claim="Too big.", advice="Buy.")])["runs"]
    assert run["results"][0]["locations"] == []


def test_an_annotation_names_the_place() -> None:
    assert annotation(finding(column=9, end_line=41, end_column=27)) == (
        "::warning title=DF101 loss-kept-with-graph,file=train.py,line=41,endLine=41,col=9,endColumn=27"
        "::total_loss keeps the graph of every step. Add loss.item()."
    )


def test_an_annotation_is_one_line_whatever_is_in_it() -> None:
    odd = Finding(code="DF101", claim="100 %\nof it\r", advice="x::y", place=Place(file="a,b:c\n.py", line=1))
    assert annotation(odd) == (
        "::warning title=DF101 loss-kept-with-graph,file=a%2Cb%3Ac%0A.py,line=1::100 %25%0Aof it%0D x::y"
    )
    assert problem_annotation("a\nb") == "::error title=dryfit lint::a%0Ab"

"""`dryfit lint`: what it prints, in which form, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dryfit import cli

LEAKY = """\
import torch
from torch import nn


def train(loader):
    model = nn.Linear(3, 3).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    total_loss = 0
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        total_loss += loss
    return total_loss
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "leaky.py").write_text(LEAKY)
    (tmp_path / "clean.py").write_text(LEAKY.replace("+= loss", "+= loss.item()"))
    return tmp_path


def test_a_finding_is_a_place_its_line_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lint", "leaky.py", "clean.py"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["leaky.py:14:9: DF101 loss-kept-with-graph", "    total_loss += loss"]
    assert lines[2].startswith("    `total_loss` sums `loss` together with its graph")
    assert lines[-1] == "1 finding in 2 files. `dryfit lint --explain DF101` says more."


def test_nothing_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lint", "clean.py"]) == 0
    assert capsys.readouterr().out == "No mistake is certain in 1 file.\n"


def test_what_cannot_be_read_is_said_and_ends_with_2(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / "broken.py").write_text("def train(:\n")
    assert cli.main(["lint", "clean.py", "broken.py"]) == 2
    seen = capsys.readouterr()
    assert seen.out == "No mistake is certain in 1 file.\n"
    assert seen.err.startswith("dryfit: broken.py:1: this is no Python")
    assert cli.main(["lint", "leaky.py", "broken.py"]) == 1


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lint", "--json", "leaky.py"]) == 1
    values = json.loads(capsys.readouterr().out)
    assert values["schema"] == "dryfit.lint/1"
    assert values["files"] == ["leaky.py"]
    assert values["problems"] == []
    (finding,) = values["findings"]
    assert (finding["code"], finding["place"]["line"], finding["place"]["column"]) == ("DF101", 14, 9)


def test_sarif_and_annotations(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lint", "--sarif", "leaky.py"]) == 1
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert [result["ruleId"] for result in run["results"]] == ["DF101"]
    assert cli.main(["lint", "--github", "leaky.py"]) == 1
    title = "::warning title=DF101 loss-kept-with-graph,file=leaky.py,line=14,endLine=14,col=9,endColumn=27::"
    assert capsys.readouterr().out.startswith(title)


@pytest.mark.parametrize("form", [[], ["--json"], ["--sarif"], ["--github"]])
def test_a_file_has_what_would_be_printed(form: list[str], here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lint", *form, "leaky.py"]) == 1
    printed = capsys.readouterr().out
    assert cli.main(["lint", *form, "leaky.py", "-o", "found.txt"]) == 1
    seen = capsys.readouterr()
    assert seen.out == ""
    assert seen.err.startswith("Wrote found.txt (")
    assert (here / "found.txt").read_text() == printed


def test_rules_are_chosen_by_code_name_or_hundred(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lint", "--select", "loss-kept-with-graph", "leaky.py"]) == 1
    assert cli.main(["lint", "--select", "DF1", "leaky.py"]) == 1
    assert cli.main(["lint", "--select", "df3, DF404", "leaky.py"]) == 0
    assert cli.main(["lint", "--ignore", "DF1", "leaky.py"]) == 0
    capsys.readouterr()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["lint"], "There is no PATH to look at; name a file or a folder, such as: dryfit lint ."),
        (
            ["lint", "--select", ",", "."],
            "--select and --ignore take codes or names with commas between, such as DF101,DF3.",
        ),
        (["lint", "--select", "DF999", "."], "There is no rule 'DF999'; did you mean DF509 or DF109?"),
        (["lint", "--select", "xyzzy", "."], "There is no rule 'xyzzy'; `dryfit lint --explain all` lists them."),
        (
            ["lint", "--explain", "DF101", "leaky.py"],
            "--explain prints the page of a rule, and looks at no PATH; leave one of them out.",
        ),
        (
            ["lint", "leaky.py", "-o", "leaky.py"],
            "-o would write over leaky.py, which this command reads; name another file.",
        ),
    ],
)
def test_wrong_words(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    assert capsys.readouterr().err == f"dryfit: {sentence}\n"


def test_a_rule_is_explained_by_its_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lint", "--explain", "loss-kept-with-graph"]) == 0
    assert capsys.readouterr().out.startswith("# DF101 loss-kept-with-graph\n")
    assert cli.main(["lint", "--explain", "all"]) == 0
    assert capsys.readouterr().out.count("\n") == 39

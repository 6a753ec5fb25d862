"""What docs/lint.md says of precision rests on the judgements, and these on public scripts."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest

from dryfit.findings import LINT, rule_of

from . import judge
from .judged import DOCUMENT, FALSE, HERE, SIXTY, TRUE, judgements, precision, repositories, scripts, with_tables


def test_the_page_has_the_tables_of_the_judgements() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert with_tables(text) == text, "write them anew: python -m tests.linting.judged"


def test_sixty_scripts_at_most_four_of_a_repository() -> None:
    chosen = scripts()
    assert len(chosen) == len({(each.repo, each.path) for each in chosen}) == 60
    assert max(Counter(each.repo for each in chosen).values()) <= 4
    assert all(len(each.commit) == 40 for each in chosen)


def test_at_least_95_percent_of_the_findings_in_the_sixty_are_true() -> None:
    now = [each.now for each in judgements() if each.set == SIXTY and each.now]
    assert now.count(TRUE) / len(now) >= 0.95


def test_each_judgement_is_of_a_known_file_and_rule_and_has_its_reason() -> None:
    sixty = {(each.repo, each.path) for each in scripts()}
    known = {name: {repo for repo, _ in each} for name, each in repositories().items()}
    for each in judgements():
        rule = rule_of(each.code)
        assert rule is not None and LINT in rule.seen_by, each
        assert {each.first, each.now} <= {TRUE, FALSE, ""} and (each.first or each.now) and each.why, each
        assert ((each.repo, each.path) in sixty) == (each.set == SIXTY), each
        assert each.set == SIXTY or each.repo in known[each.set], each
    keys = [(each.repo, each.path, each.line, each.code) for each in judgements()]
    assert len(keys) == len(set(keys))


def test_what_is_not_found_is_in_the_sixty() -> None:
    sixty = {(each.repo, each.path) for each in scripts()}
    with (HERE / "not_found.csv").open(encoding="utf-8", newline="") as file:
        assert all((row["repo"], row["path"]) in sixty and row["what"] for row in csv.DictReader(file))


def test_precision_is_written_with_its_counts() -> None:
    assert precision([TRUE, "", FALSE, TRUE]) == "2 of 3, 66.7 %"
    assert precision(["", ""]) == "none"


def test_judge_fails_on_what_nobody_judged_and_on_what_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    some = scripts()[0]
    judged = [each for each in judgements() if (each.repo, each.path, each.now) == (some.repo, some.path, TRUE)]
    assert [each.code for each in judged] == ["DF404"]
    monkeypatch.setattr(judge, "scripts", lambda: [some])
    monkeypatch.setattr(judge, "judgements", lambda: judged)
    script = tmp_path / some.repo.replace("/", "+") / some.path

    assert judge.main([str(tmp_path)]) == 1
    assert f"{script}: it is not there; check out {some.repo} at {some.commit}." in capsys.readouterr().err

    script.parent.mkdir(parents=True)
    script.write_text(
        "import torch\n\n\ndef train(model, loader, criterion, optimizer):\n    model = torch.nn.DataParallel(model)\n"
        "    for x, y in loader:\n        optimizer.zero_grad()\n        criterion(model(x), y).backward()\n"
        "        optimizer.step()\n"
    )
    assert judge.main([str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert f"{some.repo} {some.path}:5 DF404: not judged yet: DataParallel copies the model to every card" in told
    assert f"{some.repo} {some.path}:{judged[0].line} DF404: judged true, and not found any more." in told

    lines = script.read_text()
    script.write_text(lines.replace("\n\n\n", "\n" * (int(judged[0].line) - 2), 1))
    assert judge.main([str(tmp_path)]) == 0
    assert "sixty, now:             1 of 1, 100.0 % true" in capsys.readouterr().out


def test_judge_names_its_sets(capsys: pytest.CaptureFixture[str]) -> None:
    assert judge.main(["folder", "nonsense"]) == 2
    assert capsys.readouterr().err == (
        "usage: python -m tests.linting.judge FOLDER [sixty|rest|fresh-1|fresh-2|fresh-3|fresh-4|fresh-5]\n"
    )

"""`dryfit verify`: what it asks, prints and writes. Both runs are given here; tests/verifying has whole ones."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dryfit import cli
from dryfit.rehearse.result import Ending
from dryfit.verifying import verify
from dryfit.verifying.real_card import Twin
from dryfit.verifying.row import read_rows
from dryfit.verifying.verify import Verified

from ..verifying.sides import CARD, row, trained

Captured = pytest.CaptureFixture[str]
ENDING = Ending(how="steps", sentence="Stopped after 3 optimiser steps, as asked.")
FOUND = Verified(row=row(trained(3), trained(3)), real_ending=ENDING, virtual_ending=ENDING)


class Terminal(io.StringIO):
    """A person who answers."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The comparisons that were asked for, each of which finds the same; a card is there."""
    seen: list[dict[str, Any]] = []

    def compare(words: list[str], real: object, twin: object, **options: Any) -> Verified:
        seen.append({"words": words, **options})
        return FOUND

    monkeypatch.setattr(verify, "look", lambda: (CARD, Twin(gpu="l4", memory_bytes=CARD.total_bytes, key="l4")))
    monkeypatch.setattr(verify, "verify", compare)
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("the program")
    return seen


def test_with_yes_it_says_what_it_does_and_adds_a_row(calls: list[dict[str, Any]], capsys: Captured) -> None:
    words = ["verify", "--yes", "--steps", "3", "--host-memory", "1GiB", "--quiet", "train.py", "--batch", "8"]
    assert cli.main(words) == 0
    seen = capsys.readouterr()
    assert seen.out.startswith("ALIKE on NVIDIA L4: ")
    assert seen.err.splitlines() == [
        "dryfit: train.py --batch 8 is rehearsed, and then trains for real on NVIDIA L4, 22.03 GiB, driver 550.54.15, "
        "for as many optimiser steps and at most 600 seconds. What it writes outside temporary folders is thrown away. "
        "It reaches no network. It takes memory of the card that other programs there may miss.",
        "Added a row to dryfit-verify.jsonl; docs/verify.md says where to send it.",
    ]
    assert calls[0]["words"] == ["train.py", "--batch", "8"]
    assert (calls[0]["steps"], calls[0]["how"].host_memory_bytes, calls[0]["how"].quiet) == ("3", 1 << 30, True)
    assert cli.main(["verify", "-y", "train.py"]) == 0
    assert read_rows("dryfit-verify.jsonl") == [FOUND.row, FOUND.row]


def test_as_json_elsewhere(calls: list[dict[str, Any]], capsys: Captured) -> None:
    assert cli.main(["verify", "-y", "--json", "-o", "rows.jsonl", "train.py"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(FOUND.row.to_json())
    assert read_rows("rows.jsonl") == [FOUND.row]


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("yes\n", 0), ("n\n", 2), ("\n", 2), ("", 2)])
def test_a_person_is_asked(
    calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capsys: Captured, answer: str, code: int
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    assert cli.main(["verify", "train.py"]) == code
    err = capsys.readouterr().err
    assert "dryfit: start? [y/N] " in err
    assert ("dryfit: nothing was run." in err) == (code == 2)
    assert len(calls) == (code == 0)


def test_nobody_is_there_to_be_asked(
    calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert cli.main(["verify", "--allow-network", "train.py"]) == 2
    said, refused = capsys.readouterr().err.splitlines()
    assert "It may use the network." in said
    assert refused == (
        "dryfit: Nobody is there to be asked whether the program may run on the card; say so with --yes."
    )
    assert not calls


def test_real_files_are_told_of(calls: list[dict[str, Any]], capsys: Captured) -> None:
    assert cli.main(["verify", "-y", "--allow-writes", "train.py"]) == 0
    assert (
        "The real run writes its files as it would without dryfit, but is stopped before its end."
        in capsys.readouterr().err
    )
    assert calls[0]["how"].allow_writes


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["-y", "nothing.py"], "dryfit: There is no file nothing.py (looked in "),
        (["-y", "-o", "train.py", "train.py"], "dryfit: -o would write over train.py, which this command reads"),
        (["-y"], "dryfit: There is no program to run; "),
    ],
)
def test_what_cannot_be_is_said_before_anything_runs(
    calls: list[dict[str, Any]], capsys: Captured, words: list[str], sentence: str
) -> None:
    assert cli.main(["verify", *words]) == 2
    assert capsys.readouterr().err.startswith(sentence)
    assert not calls

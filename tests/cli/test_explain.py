"""`dryfit explain`: a text's verdict and numbers, a recording's settings, wrong words."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from dryfit import cli

TOO_BIG = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacity of 23.52 GiB "
    "of which 1.00 GiB is free. Process 11 has 22.52 GiB memory in use. Of the allocated memory 21.90 GiB is allocated "
    "by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated."
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_text_of_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", TOO_BIG]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("DF501 too-big: ")
    assert lines[1].startswith("Next: ")
    assert any(line.split() == ["asked", "for", "8.00", "GiB"] for line in lines)
    assert any(line.split() == ["reserved", "by", "PyTorch", "22.00", "GiB"] for line in lines)
    assert lines[-1] == "`dryfit lint --explain DF501` says more."


def test_a_log_of_two_ranks(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / "oom.log").write_text(f"[rank1]: {TOO_BIG}\nstep 3\n[rank0]: {TOO_BIG.replace('8.00', '4.00')}\n")
    assert cli.main(["explain", "oom.log"]) == 0
    heads = [line for line in capsys.readouterr().out.splitlines() if line.startswith("DF501")]
    assert [head.partition(":")[0] for head in heads] == ["DF501 too-big"] * 2
    assert [head.split()[2:6] for head in heads] == [["GPU", "0", "(rank", f"{rank})"] for rank in (1, 0)]


def test_stdin_and_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(TOO_BIG.encode() + b"\xff")))
    assert cli.main(["explain", "-", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert (values["schema_version"], values["kind"]) == (1, "log")
    (message,) = values["messages"]
    assert message["finding"]["code"] == "DF501"
    assert message["message"]["requested_bytes"] == 8 << 30


def test_output_is_the_json(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    assert cli.main(["explain", TOO_BIG, "-o", "why.json"]) == 0
    seen = capsys.readouterr()
    assert seen.out == ""
    assert seen.err.startswith("Wrote why.json (")
    assert json.loads((here / "why.json").read_text())["findings"][0]["code"] == "DF501"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["explain", "no-such-file.log"],
            "There is no file no-such-file.log; give a log, a snapshot, a recording, or the text of the error itself.",
        ),
        (
            ["explain", "epoch 3: loss 0.1"],
            "The text holds no out-of-memory message, of PyTorch or of the libraries under it: give the whole error, "
            "or the log around it.",
        ),
        (
            ["explain", TOO_BIG, "--no-retrace", "--settings", "expandable_segments:True"],
            "--settings asks what other settings would have done, and --no-retrace not to; leave one out.",
        ),
    ],
)
def test_wrong_words(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    assert capsys.readouterr().err == f"dryfit: {sentence}\n"

"""The command line itself: help, wrong words, errors of ours, the doctor."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

import dryfit
from dryfit import cli
from dryfit.errors import UsageError
from dryfit.rehearse import checkup
from dryfit.virtual_card import TorchBuild


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"dryfit {dryfit.__version__}\n"


@pytest.mark.parametrize("words", [[], ["ruin"], ["run", "--no-such-option", "x.py"], ["cards", "--gpu", "t4"]])
def test_wrong_words_end_with_the_usage_and_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 2
    assert "usage: dryfit" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (UsageError("There is no such thing; name another."), 2, "dryfit: There is no such thing; name another."),
        (BrokenPipeError(), 141, None),
        (KeyboardInterrupt(), 130, "dryfit: stopped by Ctrl-C."),
        (RuntimeError("bug"), 70, "dryfit: this is our fault; please report the lines above with the command."),
    ],
)
def test_an_error_becomes_a_sentence_and_a_code(
    error: BaseException,
    code: int,
    line: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fails(arguments: object) -> int:
        raise error

    monkeypatch.setattr(sys, "stdout", sys.stdout)  # to be put back
    verb = SimpleNamespace(NAME="fails", HELP="", __doc__="", add_arguments=lambda parser: None, run=fails)
    monkeypatch.setattr(cli, "_VERBS", (verb,))
    assert cli.main(["fails"]) == code
    seen = capsys.readouterr()
    assert seen.out == ""
    assert (seen.err.splitlines() or [None])[-1] == line
    assert ("Traceback" in seen.err) == (code == 70)


OPTIONS = {
    "run": {
        "--help", "--gpu", "--memory", "--address-order", "--steps", "--seconds", "--host-memory", "--allow-writes",
        "--allow-network", "--skip-weights", "--exact-weights", "--assume",
        "--no-values", "--with", "--quiet", "--json",
        "--output", "--report", "--record", "--watch", "--longest", "--world", "--ranks", "--nodes", "--cards",
    },
    "fit": {
        "--help", "--gpu", "--reserve", "--vary", "--effective", "--gpus", "--steps", "--seconds", "--host-memory",
        "--jobs", "--no-cache", "--allow-network", "--skip-weights", "--exact-weights", "--assume",
        "--json", "--output", "--longest", "--world", "--nodes", "--cards",
    },
    "plan": {
        "--help", "--gpu", "--reserve", "--keep", "--batch", "--only", "--also", "--without", "--most", "--steps",
        "--seconds", "--host-memory", "--jobs", "--no-cache", "--allow-network", "--skip-weights", "--exact-weights",
        "--assume", "--json", "--output", "--longest", "--world", "--nodes", "--cards",
    },
    "sweep": {
        "--help", "--output", "--backend", "--address", "--jobs", "--retry", "--again", "--rows", "--json",
    },
    "estimate": {
        "--help", "--dtype", "--amp", "--master-weights", "--lora-rank", "--lora-targets", "--optimizer", "--foreach",
        "--fused", "--for-loop", "--gpu", "--json",
    },
    "report": {"--help", "--text", "--json", "--output", "--html", "--snapshot", "--perfetto", "--device"},
    "explain": {"--help", "--gpu", "--settings", "--no-retrace", "--json", "--output"},
    "lint": {"--help", "--select", "--ignore", "--json", "--sarif", "--github", "--output", "--explain"},
    "verify": {
        "--help", "--steps", "--seconds", "--host-memory", "--yes", "--allow-writes", "--allow-network",
        "--skip-weights", "--quiet", "--json", "--output",
    },
    "cards": {"--help", "--json"},
    "doctor": {"--help", "--json"},
}  # fmt: skip


@pytest.mark.parametrize("verb", OPTIONS)
def test_the_options_of_a_verb_are_these(verb: str) -> None:
    text = subprocess.run(
        [sys.executable, "-m", "dryfit", verb, "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert set(re.findall(r"^  (?:-\w(?: [A-Z]+)?, )?(--[\w-]+)", text, re.MULTILINE)) == OPTIONS[verb]


def test_the_verbs_are_these() -> None:
    assert {verb.NAME for verb in cli._VERBS} == set(OPTIONS)


def test_the_doctor_finds_nothing_wrong_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor"]) == 0
    subjects = [line.split(":")[0].split()[-1] for line in capsys.readouterr().out.splitlines()]
    assert subjects[:3] == ["machine", "torch", "card"]
    assert {"writes", "network", "processes"} <= set(subjects)
    assert cli.main(["doctor", "--json"]) == 0
    assert {finding["mark"] for finding in json.loads(capsys.readouterr().out)} <= {"ok", "note"}


def test_the_doctor_says_how_to_replace_a_cpu_only_torch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pathlib import Path

    build = TorchBuild(version="2.14.1+cpu", cuda=None, cudnn=None, folder=Path("/site/torch"))
    monkeypatch.setattr(checkup, "installed_torch", lambda: build)
    assert cli.main(["doctor"]) == 2
    line = next(line for line in capsys.readouterr().out.splitlines() if "torch:" in line)
    assert line.startswith("  no  torch: The installed torch 2.14.1+cpu (/site/torch) is a CPU-only build.")
    assert "pip install torch --index-url" in line


def test_the_doctor_knows_a_machine_it_cannot_work_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checkup.platform, "libc_ver", lambda: ("", ""))
    assert cli.main(["doctor"]) == 2
    assert "without glibc (musl?); PyTorch has no CUDA build for it" in capsys.readouterr().out

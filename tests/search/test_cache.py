"""What is kept of rehearsals, and when it no longer counts."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from dryfit.search.cache import cache_folder, keep, key_of, look_up
from dryfit.search.trial import FAILED, FITS, STOPPED, TOO_BIG, Trial

TRIAL = Trial(value=8, kind=FITS, sentence="Stopped after 3 optimiser steps.", peak_total_bytes=1 << 30, seconds=2.0)


def test_what_is_kept_is_found_and_says_that_it_is_from_the_cache(tmp_path: Path) -> None:
    keep("key", TRIAL, [], tmp_path / "cache")
    assert look_up("key", tmp_path / "cache") == dataclasses.replace(TRIAL, from_cache=True)
    assert look_up("other", tmp_path / "cache") is None
    assert os.listdir(tmp_path / "cache") == ["key.json"]  # noqa: PTH208


@pytest.mark.parametrize("kind", [FAILED, STOPPED])
def test_what_failed_or_was_stopped_is_run_again(kind: str, tmp_path: Path) -> None:
    keep("key", dataclasses.replace(TRIAL, kind=kind), [], tmp_path)
    assert look_up("key", tmp_path) is None


def test_a_module_of_the_programs_own_that_has_changed_or_gone_makes_it_void(tmp_path: Path) -> None:
    module = tmp_path / "model.py"
    module.write_text("width = 8\n")
    keep("key", dataclasses.replace(TRIAL, kind=TOO_BIG), [str(module)], tmp_path / "cache")
    assert look_up("key", tmp_path / "cache") is not None
    module.write_text("width = 9\n")
    assert look_up("key", tmp_path / "cache") is None
    module.write_text("width = 8\n")
    assert look_up("key", tmp_path / "cache") is not None
    module.unlink()
    assert look_up("key", tmp_path / "cache") is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"files": {}}', '{"files": {}, "trial": {"value": 1}}', '{"files": 3}']
)
def test_an_entry_that_cannot_be_read_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "key.json").write_text(text)
    assert look_up("key", tmp_path) is None


def test_without_a_place_to_write_nothing_is_kept_and_nothing_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    keep("key", TRIAL, [], tmp_path / "file" / "cache")
    assert look_up("key", tmp_path / "file" / "cache") is None


def test_the_folder_follows_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache_folder() == Path("/elsewhere/dryfit/rehearsals")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # which the rule says to ignore
    assert cache_folder() == Path.home() / ".cache/dryfit/rehearsals"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache/dryfit/rehearsals"


def test_files_named_in_the_words_are_in_the_key_by_their_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["train.py", "--config=config.yaml", "x" * 5000, "nul\0"]
    (tmp_path / "train.py").write_text("pass")
    (tmp_path / "config.yaml").write_text("width: 8")
    key = key_of(words, {}, {})
    assert key_of(words, {}, {}) == key
    (tmp_path / "config.yaml").write_text("width: 9")
    assert key_of(words, {}, {}) != key


def test_variables_of_the_terminal_are_not_in_the_key_and_all_others_are() -> None:
    here = key_of([], {}, {"TERM": "xterm", "SHLVL": "1", "SSH_TTY": "/dev/pts/1", "WIDTH": "8"})
    assert key_of([], {}, {"TERM": "dumb", "SHLVL": "2", "WIDTH": "8"}) == here
    assert key_of([], {}, {"WIDTH": "9"}) != here


def test_what_was_asked_of_the_rehearsal_is_in_the_key() -> None:
    assert key_of([], {"steps": 3}, {}) != key_of([], {"steps": 4}, {})

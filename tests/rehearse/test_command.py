from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dryfit.errors import UsageError
from dryfit.rehearse.child import folders_of_files
from dryfit.rehearse.command import command_line, devices_of


def test_a_script_is_run_by_this_python(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    assert command_line([str(script), "--lr", "1"]) == [sys.executable, str(script), "--lr", "1"]


def test_an_executable_script_is_still_run_by_this_python(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("#!/usr/bin/python2\n")
    script.chmod(0o755)
    assert command_line([str(script)])[0] == sys.executable


def test_a_module() -> None:
    assert command_line(["-m", "package.train", "-x"]) == [sys.executable, "-m", "package.train", "-x"]


def test_a_folder_with_a_main(tmp_path: Path) -> None:
    (tmp_path / "__main__.py").write_text("")
    assert command_line([str(tmp_path)]) == [sys.executable, str(tmp_path)]


def test_a_command_on_the_path() -> None:
    assert command_line(["sh", "-c", "true"])[1:] == ["-c", "true"]
    assert Path(command_line(["sh"])[0]).is_absolute()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "There is no program to run; write one after the options"),
        (["-m"], "-m needs the name of a module to run"),
        (["missing.py"], r"There is no file missing\.py \(looked in .*\); check the path of the script\."),
        (["some/where/missing"], "There is no file some/where/missing"),
        (["no-such-command"], "There is neither a file nor a command called no-such-command; name a script"),
    ],
)
def test_what_cannot_be_run_is_said(words: list[str], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        command_line(words)


def test_a_folder_without_a_main_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is a folder without a __main__\.py; name the script in it that trains"):
        command_line([str(tmp_path)])


@pytest.mark.parametrize(
    ("words", "devices"),
    [
        (["train.py"], 1),
        (["train.py", "--nproc-per-node", "8"], 1),
        (["torchrun", "--nproc-per-node", "2", "train.py"], 2),
        (["torchrun", "--nproc_per_node=8", "-m", "train"], 8),
        (["torchrun", "--nproc-per-node", "auto", "train.py"], 1),
        (["accelerate", "launch", "--num_processes", "4", "train.py", "--x", "1"], 4),
        (["deepspeed", "--num_gpus", "2", "train.py", "--stage", "3"], 2),
        (["python", "-m", "torch.distributed.run", "--nproc-per-node=3", "train.py"], 3),
    ],
)
def test_a_launcher_of_several_processes_needs_as_many_cards(words: list[str], devices: int) -> None:
    assert devices_of(words) == devices


@pytest.mark.parametrize("written", ["num_machines: 1\nnum_processes: 8\n", '{\n  "num_processes": 8,\n  "fsdp": 1}'])
def test_accelerates_file_of_settings_says_how_many_cards(tmp_path: Path, written: str) -> None:
    (tmp_path / "fsdp.yaml").write_text(written)
    words = ["accelerate", "launch", "--config_file", str(tmp_path / "fsdp.yaml"), "train.py"]
    assert devices_of(words) == 8
    assert devices_of([*words[:2], "--num_processes", "2", *words[2:]]) == 2
    assert devices_of([*words[:3], str(tmp_path / "none.yaml"), "train.py"]) == 1


def test_a_word_longer_than_a_name_can_be_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    assert folders_of_files(["python", str(tmp_path / "train.py"), "x" * 5000]) == [str(tmp_path)]

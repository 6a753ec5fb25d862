"""The file of a sweep: what it may hold, the cells that it makes, and the sentences where it is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dryfit
from dryfit.errors import UsageError
from dryfit.search.cache import content_of
from dryfit.sweeping.cell import cells_of, dealing_order, keys_of
from dryfit.sweeping.grid import grid_of, read_grid

PROGRAM = ["train.py", "--batch", "{batch}"]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DRYFIT_GPU", raising=False)
    for name in ("train.py", "other.py"):
        (tmp_path / name).write_text("import torch\n")
    return tmp_path


def test_cells_are_the_product_and_the_last_axis_varies_fastest(project: Path) -> None:
    (project / "grid.toml").write_text(
        """
        program = ["train.py", "--batch={batch}", "--lr", "{lr}", "--ranks", "{world}", "{{kept}}"]
        [grid]
        batch = [1, 2]
        lr = 1e-4
        world = [1, 8]
        with = ["", "fused-optimizer, checkpoint-blocks"]
        gpu = "l4"
        [options]
        steps = 3
        host_memory = "2GiB"
        """
    )
    grid = read_grid(project / "grid.toml")
    cells = cells_of(grid)
    assert grid.options == {"steps": 3, "host_memory_bytes": 2 << 30}
    assert [(cell.settings["batch"], cell.world, cell.measures) for cell in cells[:3]] == [
        (1, 1, ""), (1, 1, "fused-optimizer, checkpoint-blocks"), (1, 8, ""),
    ]  # fmt: skip
    assert len(cells) == 8
    assert cells[-1].words == ("train.py", "--batch=2", "--lr", "0.0001", "--ranks", "8", "{kept}")
    assert cells[-1].settings == {"batch": 2, "lr": 1e-4}
    assert (cells[-1].gpu, cells[-1].measure_names) == ("l4", ["fused-optimizer", "checkpoint-blocks"])


def test_programs_have_the_axes_that_they_name_and_their_own() -> None:
    own = {"words": ["other.py", "{batch}", "{seq}"], "grid": {"seq": [512], "batch": [64]}}
    programs = [{"name": "short", "words": PROGRAM}, own]
    cells = cells_of(grid_of({"program": programs, "grid": {"batch": [1, 2], "gpu": ["t4", "l4"]}}))
    assert [(cell.program, cell.settings, cell.gpu) for cell in cells] == [
        ("short", {"batch": 1}, "t4"), ("short", {"batch": 1}, "l4"),
        ("short", {"batch": 2}, "t4"), ("short", {"batch": 2}, "l4"),
        ("other.py", {"batch": 64, "seq": 512}, "t4"), ("other.py", {"batch": 64, "seq": 512}, "l4"),
    ]  # fmt: skip
    dealt = dealing_order(cells)
    assert [(cell.program, cell.gpu) for cell in dealt] == [
        ("short", "l4"), ("short", "l4"), ("short", "t4"), ("short", "t4"), ("other.py", "l4"), ("other.py", "t4"),
    ]  # fmt: skip


def test_without_a_card_in_the_grid_that_of_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = grid_of({"program": PROGRAM, "grid": {"batch": 1}})
    assert cells_of(grid)[0].gpu is None
    monkeypatch.setenv("DRYFIT_GPU", "t4")
    assert cells_of(grid)[0].gpu == "t4"


def test_a_key_is_of_all_that_decides_and_of_nothing_that_a_batch_system_says(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keys(options: dict[str, Any] | None = None, torch: str = "2.14") -> list[str]:
        cells = cells_of(grid_of({"program": PROGRAM, "grid": {"batch": [1, 2], "gpu": "t4"}}))
        return keys_of(cells, options or {}, torch, lambda file: content_of(Path(file)))

    before = keys()
    assert len({*before, *keys({"steps": 3}), *keys(torch="2.13")}) == 6
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    assert keys() == before
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    assert not set(keys()) & set(before)
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF")
    monkeypatch.setattr(dryfit, "__version__", "9.9.9")
    assert not set(keys()) & set(before)
    monkeypatch.undo()
    monkeypatch.chdir(project)
    (project / "train.py").write_text("import torch  # changed\n")
    assert not set(keys()) & set(before)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, 'It names no program; write its words: program = ["train.py", "--batch", "{batch}"]'),
    ({"program": "train.py 8"}, "program = 'train.py 8' is not a list of words"),
    ({"program": ["nothing.py"]}, "There is no file nothing.py"),
    ({"programs": PROGRAM}, "programs is no part of the file, which has program = [...], [grid] and [options]."),
    (
        {"program": PROGRAM},
        "{batch} in train.py stands for nothing: give it values in [grid], as in batch = [1, 2], or write {{batch}} if "
        "the program is to get {batch} as it is.",
    ),
    (
        {"program": PROGRAM, "grid": {"batch": [1], "seq": [2]}},
        "seq in [grid] has no place to go: no word of a program holds {seq}; there is {batch}.",
    ),
    ({"program": PROGRAM, "grid": {"batch": []}}, "[grid] has no value for batch; write one or more (batch = [1, 2])"),
    ({"program": PROGRAM, "grid": {"batch": [8, 8]}}, "[grid]: batch has the value 8 twice; every cell is rehearsed"),
    ({"program": PROGRAM, "grid": {"batch": [True]}}, "[grid]: batch = true could be written True, true or 1 for a"),
    ({"program": PROGRAM, "grid": {"batch": 1, "world": ["8"]}}, "[grid]: world = '8' is no number of ranks"),
    ({"program": PROGRAM, "grid": {"batch": 1, "world": 12, "gpu": "t4"}, "options": {"nodes": 5}}, "--world 12 --nod"),
    ({"program": PROGRAM, "grid": {"batch": 1, "gpu": ["t5000"]}}, "dryfit knows no card called 't5000'"),
    ({"program": PROGRAM, "grid": {"batch": 1, "with": ["magic"]}}, "There is no measure 'magic'; there are "),
    ({"program": PROGRAM, "grid": {"batch": 1}, "options": {"speed": 1}}, "There is no option speed; [options] may "),
    ({"program": PROGRAM, "grid": {"batch": 1}, "options": {"steps": 0}}, "steps = 0 is neither a number of optimiser"),
    ({"program": PROGRAM, "grid": {"batch": 1}, "options": {"ranks": "all"}}, "ranks says something of a world: give"),
    ({"program": PROGRAM, "grid": {"batch": 1}, "options": {"allow-writes": True}}, "allow-writes is no option of a "),
    ({"program": ["train.py", "{steps}"], "grid": {"steps": 1}}, "{steps} in train.py would be a column of the table"),
    (
        {"program": [{"words": PROGRAM}, {"words": PROGRAM}], "grid": {"batch": 1}},
        "Two programs are called train.py; give each a name of its own",
    ),
    ({"program": PROGRAM, "grid": {"batch": list(range(100_001))}}, "The grid makes 100001 cells, and 100000 are the "),
]  # fmt: skip


@pytest.mark.parametrize(("values", "sentence"), WRONG)
def test_a_wrong_grid_is_a_sentence(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        cells_of(grid_of(values))
    assert str(caught.value).startswith(sentence)


def test_the_sentence_begins_with_the_file(project: Path) -> None:
    (project / "grid.toml").write_text("program = [")
    with pytest.raises(UsageError, match=r"grid\.toml is not TOML: "):
        read_grid(project / "grid.toml")
    (project / "grid.toml").write_text("[grid]\nbatch = 1\n")
    with pytest.raises(UsageError, match=r"grid\.toml: It names no program"):
        read_grid(project / "grid.toml")
    with pytest.raises(UsageError, match=r"There is no file none\.toml"):
        read_grid(Path("none.toml"))

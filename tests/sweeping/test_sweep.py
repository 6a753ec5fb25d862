"""`dryfit sweep` as a user starts it: by processes of this machine, on a real Ray and on a real Dask cluster."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int)
parser.add_argument("--width", type=int)
arguments = parser.parse_args()
if arguments.batch == 3:
    raise ValueError("no batch of three")
model = torch.nn.Linear(arguments.width, arguments.width, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.empty(arguments.batch, arguments.width, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
GRID = """
program = ["train.py", "--batch", "{batch}", "--width", "{width}"]
[grid]
batch = [1, 2, 3]
width = [1024, 32768]
gpu = ["a100-80gb", "t4"]
[options]
steps = 2
"""
OF_RANKS = """
import os
import torch
from torch import distributed

ranks = int(os.environ.get("WORLD_SIZE", "1"))
assert torch.cuda.device_count() == {1: 3, 2: 2}[ranks]
if ranks > 1:
    distributed.init_process_group("nccl")
model = torch.nn.Linear(1024, 1024, bias=False, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.empty(8, 1024, device="cuda")).sum().backward()
    if ranks > 1:
        distributed.all_reduce(model.weight.grad)
    optimizer.step()
"""
ONE = ("--jobs", "1")  # imports torch once
RAY = """
import sys, ray
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
print("at", ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
"""
DASK = """
import sys
from distributed import LocalCluster
if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        print("at", cluster.scheduler_address, flush=True)
        sys.stdin.read()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    (folder / "grid.toml").write_text(GRID)
    return folder


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    """An environment with a cache of its own, and a token of this test's Ray, which then writes none at home."""
    variables = {name: value for name, value in os.environ.items() if name != "DRYFIT_GPU"}
    ray = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0"}
    return variables | ray | {"XDG_CACHE_HOME": str(tmp_path / "cache")}


def sweep(project: Path, variables: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dryfit", "sweep", "--jobs", "2", "grid.toml", *words],
        capture_output=True, text=True, cwd=project, env=variables, timeout=200,
    )  # fmt: skip


@contextmanager
def cluster(code: str, folder: Path, variables: dict[str, str]) -> Iterator[str]:
    """The address of a cluster that another process has started, in another folder than the program's."""
    script = folder / "cluster.py"
    script.write_text(code)
    with (folder / "cluster.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, str(script)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=folder, env=variables,
        )  # fmt: skip
        assert process.stdout is not None
        try:
            address = next((line.split()[1] for line in process.stdout if line.startswith("at ")), None)
            assert address is not None, (folder / "cluster.log").read_text()
            yield address
        finally:
            process.communicate(timeout=60)


def test_the_table_is_the_same_from_loky_ray_and_dask(project: Path, tmp_path: Path, variables: dict[str, str]) -> None:
    tables: dict[str, list[dict[str, Any]]] = {}
    done = sweep(project, variables, "-o", "loky.json")
    assert done.returncode == 3, done.stderr
    tables["loky"] = json.loads((project / "loky.json").read_text())
    for backend, code in (("ray", RAY), ("dask", DASK)):
        with cluster(code, tmp_path, variables) as address:
            words = ("--backend", backend, "--address", address, "--rows", f"{backend}.jsonl", "-o", f"{backend}.json")
            clustered = sweep(project, variables, *words)
            assert clustered.returncode == 3, clustered.stderr
            assert hosts_in(project) == []
            tables[backend] = json.loads((project / f"{backend}.json").read_text())
    for rows in tables.values():
        assert all(row.pop("seconds") > 0 for row in rows)
    assert tables["loky"] == tables["ray"] == tables["dask"]

    rows = tables["loky"]
    assert [row["verdict"] for row in rows if row["batch"] != 3] == ["fits", "fits", "fits", "fits"] * 2
    assert {(row["error"], row["error_sentence"]) for row in rows if row["batch"] == 3} == {
        (
            "ValueError",
            "train.py failed before its first optimiser step: ValueError: no batch of three (train.py:10).",
        )
    }
    of_4_gib = [row for row in rows if row["width"] == 32768 and row["batch"] == 1]
    assert all(row["peak_allocated_bytes"] >= 2 * 4 << 30 for row in of_4_gib)  # the weights and their gradients
    assert done.stdout.startswith("SWEPT 12 cells: 8 fit, 4 failed\n")
    assert "dryfit: 12 of 12: " in done.stderr


def test_a_cell_is_what_a_run_of_its_own_finds(project: Path, variables: dict[str, str]) -> None:
    (project / "grid.toml").write_text(
        'program = ["train.py", "--batch", "2", "--width", "{width}"]\n'
        '[grid]\nwidth = [1024]\nworld = [1, 8]\nwith = ["", "fused-optimizer"]\ngpu = "a100-80gb"\n'
    )
    rows = json.loads(sweep(project, variables, *ONE, "--json").stdout)["rows"]
    assert [(row["world"], row["with"]) for row in rows] == [
        (1, ""), (1, "fused-optimizer"), (8, ""), (8, "fused-optimizer"),
    ]  # fmt: skip
    words = (
        "run",
        "--json",
        "--quiet",
        "--gpu",
        "a100-80gb",
        "--world",
        "8",
        "train.py",
        "--batch",
        "2",
        "--width",
        "1024",
    )
    done = subprocess.run(
        [sys.executable, "-m", "dryfit", *words],
        capture_output=True, text=True, cwd=project, env=variables, timeout=100,
    )  # fmt: skip
    result = json.loads(done.stdout)
    for name in ("verdict", "peak_allocated_bytes", "peak_reserved_bytes", "peak_total_bytes", "steps"):
        assert rows[2][name] == result[name]
    assert rows[2]["peak_total_low_bytes"] == result["peak_total_range_bytes"]["low"]


def test_options_of_a_world_are_of_the_cells_that_have_one(project: Path, variables: dict[str, str]) -> None:
    (project / "train.py").write_text(OF_RANKS)
    (project / "grid.toml").write_text(
        'program = [{name = "alone", words = ["train.py"]}, {name = "ranks", words = ["train.py"], grid.world = 2}]\n'
        '[grid]\ngpu = "l4"\n[options]\ncards = 3\nranks = "0,last"\n'
    )
    done = sweep(project, variables, *ONE, "-o", "table.json")
    rows = json.loads((project / "table.json").read_text())
    assert [(row["error_sentence"], row["verdict"]) for row in rows] == [("", "fits")] * 2, done.stderr
    assert [row["sent_bytes"] for row in rows] == [0, 4 << 20]  # 2 (n - 1) / n of 4 MiB of gradients, for n = 2
    head, alone, ranks = done.stdout.splitlines()[2:5]
    assert "sent per step" in head
    assert "4.00 MiB" in ranks
    assert "4.00 MiB" not in alone


def test_a_sweep_that_was_killed_goes_on_and_repeats_nothing(project: Path, variables: dict[str, str]) -> None:
    (project / "grid.toml").write_text(GRID.replace('"a100-80gb", ', ""))
    kept = project / "grid.rows.jsonl"
    running = start(project, variables)
    wait_for_lines(kept, 3)
    running.kill()
    running.communicate()
    before = kept.read_text().splitlines()
    assert 3 <= len(before) < 6
    wait_for(lambda: hosts_in(project) == [])

    done = sweep(project, variables, *ONE)
    assert done.stderr.splitlines()[0] == f"dryfit: {len(before)} of 6 cells were done before."
    after = [json.loads(line) for line in kept.read_text().splitlines()]
    assert len(after) == len({entry["key"] for entry in after}) == 6
    assert kept.read_text().splitlines()[: len(before)] == before
    assert counts(sweep(project, variables, *ONE, "--json")) == (0, 6)

    assert counts(sweep(project, variables, *ONE, "--json", "--retry")) == (2, 4)
    (project / "train.py").write_text(PROGRAM.replace("no batch of three", "never three"))
    assert counts(sweep(project, variables, *ONE, "--json")) == (6, 0)


def test_ctrl_c_keeps_what_is_done_and_leaves_no_process(project: Path, variables: dict[str, str]) -> None:
    running = start(project, variables)
    wait_for_lines(project / "grid.rows.jsonl", 2)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=30)
    assert running.returncode == 130, said
    assert said.splitlines()[-2].endswith(
        " of 12 cells are done and kept in grid.rows.jsonl; the same command goes on from there."
    )
    assert said.splitlines()[-1] == "dryfit: stopped by Ctrl-C."
    wait_for(lambda: hosts_in(project) == [])


def test_a_worker_without_the_programs_folder_says_so(tmp_path: Path) -> None:
    from dryfit.sweeping.cell import Cell
    from dryfit.sweeping.host import Job
    from dryfit.sweeping.worker import run_cell

    job = Job(folder=str(tmp_path / "gone"), options={}, variables={}, jobs=1, dryfit="0")
    outcome = run_cell(Cell(program="train.py", words=("train.py",), settings={}), job).outcome
    assert outcome.error == "UsageError"
    assert outcome.error_sentence == (
        f"The worker {os.uname().nodename} has no folder {tmp_path / 'gone'}, where the program is; put it on a file "
        "system that all workers share, under the same path, and start the sweep there."
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["none.toml"], "There is no file none.toml; name the TOML file of a sweep, see docs/sweep.md."),
        (["grid.toml", "-o", "t.xlsx"], "t.xlsx does not end in one of .csv, .jsonl, .json, .parquet, which say how"),
        (["grid.toml", "--jobs", "0"], "--jobs 0 would rehearse nothing; it has to be 1 or more."),
        (["grid.toml", "--address", "tcp://x:1"], "--address tcp://x:1 is that of a cluster, and loky's workers are"),
        (["grid.toml", "-o", "grid.rows.jsonl"], "-o would write over grid.rows.jsonl, which this command reads; name"),
    ],
)
def test_a_wrong_command_is_a_sentence_and_2(
    project: Path, words: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from dryfit import cli

    monkeypatch.chdir(project)
    (project / "grid.rows.jsonl").touch()
    assert cli.main(["sweep", *words]) == 2
    assert capsys.readouterr().err.startswith(f"dryfit: {sentence}")


def start(project: Path, variables: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "dryfit", "sweep", "--jobs", "2", "grid.toml"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=project, env=variables,
    )  # fmt: skip


def counts(done: subprocess.CompletedProcess[str]) -> tuple[int, int]:
    values = json.loads(done.stdout)
    return values["rehearsed"], values["kept"]


def wait_for_lines(path: Path, count: int) -> None:
    wait_for(lambda: path.exists() and path.read_bytes().count(b"\n") >= count)


def wait_for(true: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def hosts_in(folder: Path) -> list[int]:
    """Processes that work in a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if path.readlink() == folder:
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found

"""`dryfit run` against recordings of real cards.

Three layers, so that what can be checked is checked everywhere: the rehearsal gives the figures committed for the
installed version of torch; those committed for the version of a recording are as close to it as is promised; and the
committed figures of the recordings are what the recordings say, where these lie beside the checkout.
"""

from __future__ import annotations

import csv
import importlib.metadata
import json
import subprocess
import sys

import pytest

from dryfit.recording.opening import open_recording
from dryfit.recording.replay import replay

from . import goldens, table
from .goldens import PROGRAMS, SNAPSHOTS, Peak, Workload

TORCH = importlib.metadata.version("torch").partition("+")[0]
WORKLOADS = goldens.workloads()
RUNS = [pytest.param(w, order, id=f"{w.name}-{order}") for w in WORKLOADS for order in w.within]
BETWEEN = ("xl-forward-512", "xl-forward-1024")
MIB = 1 << 20


def rehearsed(workload: Workload, order: str) -> Peak:
    command = [sys.executable, "-m", "dryfit", "run", "--json", "--steps", "all"]
    command += ["--gpu", workload.card, "--address-order", order]
    command += ["--", str(PROGRAMS / workload.program), *workload.arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, f"{' '.join(command)}\nended with {ended.returncode}:\n{ended.stderr[-4000:]}"
    result = json.loads(ended.stdout)
    return Peak(allocated_bytes=result["peak_allocated_bytes"], reserved_bytes=result["peak_reserved_bytes"])


@pytest.mark.truth
@pytest.mark.parametrize(("workload", "order"), RUNS)
def test_rehearsal_gives_the_committed_figures(workload: Workload, order: str, rewrite_goldens: bool) -> None:
    if goldens.numbers(TORCH) < goldens.numbers(workload.torch):
        pytest.skip(f"torch {TORCH} is older than {workload.torch}, which the recording was made with")
    if rewrite_goldens:
        goldens.record(TORCH, workload.name, order, rehearsed(workload, order))
        return
    if workload.name in BETWEEN and workload.torch != TORCH:
        pytest.skip("on other versions than the recording's the ends of this series, 128 and 2048, are rehearsed")
    figures = goldens.expected(TORCH).get(workload.name)
    if figures is None:
        versions = ", ".join(goldens.measured_versions())
        pytest.skip(f"no figures of {workload.name} are committed for torch {TORCH}; there are some for {versions}")
    assert rehearsed(workload, order) == figures[order]


@pytest.mark.parametrize(("workload", "order"), RUNS)
def test_committed_figures_are_as_close_to_the_card_as_promised(workload: Workload, order: str) -> None:
    ours, theirs = goldens.expected(workload.torch)[workload.name][order], workload.recorded
    promised = workload.within[order]
    assert abs(ours.allocated_bytes - theirs.allocated_bytes) <= promised.allocated * theirs.allocated_bytes
    assert abs(ours.reserved_bytes - theirs.reserved_bytes) <= promised.reserved * theirs.reserved_bytes


@pytest.mark.parametrize("version", goldens.measured_versions())
def test_a_golden_file_has_all_orders_of_known_workloads(version: str) -> None:
    orders = {workload.name: set(workload.within) for workload in WORKLOADS}
    for name, by_order in goldens.expected(version).items():
        assert set(by_order) == orders[name], f"{name} in the figures for torch {version}"


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_recorded_figures_are_what_the_recording_says(workload: Workload) -> None:
    if not SNAPSHOTS.exists():
        pytest.skip("the recordings do not lie beside this checkout, in ../shared/truth/snapshots")
    recording = open_recording(SNAPSHOTS / workload.recording)
    found = replay(recording.devices[0], recording.about.get("allocator_settings"))
    assert found.end_error_bytes == 0
    assert max(found.allocated_bytes) == workload.recorded.allocated_bytes
    assert max(found.reserved_bytes) == workload.recorded.reserved_bytes

    with (SNAPSHOTS / "index.csv").open(newline="") as file:
        row = next(row for row in csv.DictReader(file) if row["file"] == workload.recording)
    assert row["peak_allocated_mib"] == f"{round(workload.recorded.allocated_bytes / MIB, 3)}"
    assert row["peak_reserved_mib"] == f"{round(workload.recorded.reserved_bytes / MIB, 3)}"
    assert row["torch"].startswith(workload.torch)


def test_the_accuracy_page_shows_the_committed_figures() -> None:
    text = table.DOCUMENT.read_text()
    assert table.with_tables(text) == text, "run `python -m tests.truth.table` to write the tables anew"

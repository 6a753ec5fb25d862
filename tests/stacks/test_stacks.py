"""Every stack the README names runs unmodified, and gives the figures that are committed."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from dryfit.analyse import Footprint
from dryfit.recording.model import GRADIENT, OPTIMIZER_STATE, OPTIMIZER_STEP, PARAMETER, UNKNOWN

from . import arithmetic, goldens, table

WORKLOADS = goldens.workloads()


@pytest.mark.stacks
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_it_runs_and_gives_the_committed_figures(workload: goldens.Workload) -> None:
    for name in workload.needs:
        pytest.importorskip(name)
    result = goldens.rehearsed(workload)
    assert result["ending"]["how"] in ("steady", "most steps")
    assert result["verdict"] == "fits"
    check_owners(workload.name, result)
    found, committed = goldens.figures_of(workload, result), goldens.expected(goldens.TORCH).get(workload.name)
    if committed is None or committed.packages != found.packages:
        of = committed.packages if committed else "no version"
        pytest.skip(
            f"it ran; its figures are committed for {of}, and {found.packages} with torch {goldens.TORCH} is here"
        )
    assert found == committed


def check_owners(name: str, result: dict[str, Any]) -> None:
    """Owners sum to the peak, next to nothing is unknown, and what arithmetic can tell is as arithmetic has it."""
    footprint = Footprint.from_dict(result["footprint"])
    assert footprint.peak.allocated_bytes == result["peak_allocated_bytes"]
    assert footprint.peak_reserved_bytes == result["peak_reserved_bytes"]
    owners = {owner.owner: owner.size_bytes for owner in footprint.peak.owners}
    assert sum(owners.values()) == footprint.peak.allocated_bytes
    assert owners.get(UNKNOWN, 0) <= 0.02 * footprint.peak.allocated_bytes
    by_arithmetic = arithmetic.committed().get(name)
    if by_arithmetic is not None:
        in_step_2 = next(step for step in footprint.steps if step.step == 2)
        stepping = next(phase for phase in in_step_2.phases if phase.phase == OPTIMIZER_STEP)
        held = {owner.owner: owner.size_bytes for owner in stepping.owners}
        assert held[PARAMETER] == by_arithmetic.parameter_bytes
        assert held[GRADIENT] == by_arithmetic.gradient_bytes
        assert held[OPTIMIZER_STATE] == by_arithmetic.optimizer_state_bytes


def test_the_committed_arithmetic_is_that_of_the_models() -> None:
    for package in ("torchvision", "transformers", "peft"):
        pytest.importorskip(package)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of transformers and peft, when they are imported
        assert {name: arithmetic.arithmetic(name) for name in arithmetic.KNOWN} == arithmetic.committed()


def test_every_workload_has_committed_figures() -> None:
    assert set(goldens.expected("2.14.1")) == {workload.name for workload in WORKLOADS}


def test_the_table_in_the_readme_is_current() -> None:
    assert table.in_readme() == table.table("2.14.1")

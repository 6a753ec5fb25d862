"""Every stack the README names runs unmodified, and gives the figures that are committed."""

from __future__ import annotations

import pytest

from . import goldens, table

WORKLOADS = goldens.workloads()


@pytest.mark.stacks
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_it_runs_and_gives_the_committed_figures(workload: goldens.Workload) -> None:
    for name in workload.needs:
        pytest.importorskip(name)
    result = goldens.rehearsed(workload)
    assert result["ending"]["how"] in ("steady", "most steps")
    assert result["verdict"] == "fits"
    found, committed = goldens.figures_of(workload, result), goldens.expected(goldens.TORCH).get(workload.name)
    if committed is None or committed.packages != found.packages:
        of = committed.packages if committed else "no version"
        pytest.skip(
            f"it ran; its figures are committed for {of}, and {found.packages} with torch {goldens.TORCH} is here"
        )
    assert found == committed


def test_every_workload_has_committed_figures() -> None:
    assert set(goldens.expected("2.14.1")) == {workload.name for workload in WORKLOADS}


def test_the_table_in_the_readme_is_current() -> None:
    assert table.in_readme() == table.table("2.14.1")

"""Which code runs what is looked at."""

from __future__ import annotations

import sys
import types

import pytest

from dryfit.watching.frames import is_in_pipeline


def test_a_stage_of_a_pipeline_is_known_by_the_module_that_runs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    schedules = types.ModuleType("torch.distributed.pipelining.schedules")
    exec("def step(call):\n    return call()", vars(schedules))
    assert not schedules.step(is_in_pipeline)  # nobody has imported the package, so nothing is looked through
    monkeypatch.setitem(sys.modules, "torch.distributed.pipelining", types.ModuleType("pipelining"))
    assert schedules.step(lambda: is_in_pipeline())
    assert not is_in_pipeline()

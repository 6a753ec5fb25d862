"""Any recording that opens, whatever its numbers, is reported on in every form, or refused in one sentence."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from dryfit.analyse import analyse
from dryfit.analyse.compare import compare
from dryfit.errors import UsageError
from dryfit.recording.file import load, save
from dryfit.recording.model import Recording
from dryfit.recording.to_torch import save_snapshot
from dryfit.report.compare import print_comparison
from dryfit.report.footprint import print_footprint
from dryfit.report.notebook import html
from dryfit.report.page import write_page
from dryfit.report.perfetto import to_perfetto

from ..recording.test_file import recordings


@given(recordings())
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_recording_is_shown_or_refused(tmp_path: Path, recording: Recording) -> None:
    save(recording, tmp_path / "run.dryfit")
    try:
        analysis = analyse(load(tmp_path / "run.dryfit"))
    except UsageError as error:
        assert "\n" not in str(error)
        return
    footprint = analysis.footprint
    assert sum(one.size_bytes for one in footprint.peak.owners) == footprint.peak.allocated_bytes
    print_footprint(footprint, io.StringIO())
    print_comparison(compare(footprint, footprint), io.StringIO())
    assert html(footprint)
    assert json.dumps(to_perfetto(analysis))
    write_page(analysis, tmp_path / "page.html")
    save_snapshot(analysis.recording, tmp_path / "back.pickle")


@pytest.mark.parametrize("value", [None, {}, {"name": 3, "total_bytes": None, "key": []}])
def test_what_a_recording_says_of_the_card_is_taken_as_it_is(value: object, tmp_path: Path) -> None:
    from ..analyse.build import MIB, Script, at

    script = Script()
    script.alloc(4 * MIB, at("/elsewhere/train.py", 1))
    recording = script.recording()
    recording.about.update(card=value)
    save(recording, tmp_path / "run.dryfit")
    analysis = analyse(load(tmp_path / "run.dryfit"))
    written = io.StringIO()
    print_footprint(analysis.footprint, written)
    assert written.getvalue().startswith("PEAK 4.00 MiB allocated")
    write_page(analysis, tmp_path / "page.html")

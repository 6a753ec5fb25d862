"""The recording of a rehearsal -> who owned the memory, as a part of the result."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Mapping

from dryfit.analyse import analyse
from dryfit.recording.model import Recording
from dryfit.rehearse.result import Result


def with_footprint(result: Result, recordings: Mapping[int, Recording]) -> Result:
    """The result with the recording of the process that its figures are of, and the footprint read from that.

    Where our own reading of the recording fails, the figures still stand: a note says so.
    """
    recording = recordings.get(result.processes[0]["pid"]) if result.processes else None
    if recording is None:
        return result
    about = {
        "program": result.program,
        "card": result.card,
        "versions": result.versions,
        "ending": result.ending.how,
        "peak_used_bytes": result.processes[0]["peak_used_bytes"],
    }
    recording = dataclasses.replace(recording, about={**recording.about, **about})
    try:
        return dataclasses.replace(result, recording=recording, footprint=analyse(recording).footprint)
    except Exception:
        note = (
            "Who owned the memory could not be found out. This is our fault; please report it with these lines:\n"
            f"{traceback.format_exc()}"
        )
        return dataclasses.replace(result, notes=[*result.notes, note])

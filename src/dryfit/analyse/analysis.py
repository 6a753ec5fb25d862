"""One card of a recording, replayed, attributed and summed up."""

from __future__ import annotations

from dataclasses import dataclass

from dryfit.analyse.attribution import Attribution
from dryfit.analyse.footprint import Footprint
from dryfit.recording.model import DeviceTrace, Recording
from dryfit.recording.replay import Replay


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """Everything a report needs of one card: the record itself, and what was found out from it."""

    recording: Recording
    trace: DeviceTrace
    replay: Replay
    attribution: Attribution
    footprint: Footprint

"""A result of no program in particular, for tests of what is made of results."""

from __future__ import annotations

from dryfit.rehearse.result import Ending, Result

MIB = 1 << 20
PLAIN_RESULT = Result(
    verdict="unknown",
    card=None,
    program=["train.py"],
    peak_allocated_bytes=4 * MIB,
    peak_reserved_bytes=20 * MIB,
    peak_total_bytes=30 * MIB,
    peak_total_range_bytes={"low": 30 * MIB, "expected": 30 * MIB, "high": 30 * MIB},
    usable_bytes=None,
    peak_step=0,
    peak_phase="setup",
    steps=0,
    ending=Ending(how="finished", sentence="The program finished by itself."),
    wall_seconds=1.0,
    exit_code=0,
)

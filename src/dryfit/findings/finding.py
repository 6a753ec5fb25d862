"""One finding: a claim, what it rests on, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dryfit.findings.rules import rule_of
from dryfit.plain import from_plain, to_plain

DEVICE, HOST = "device", "host"
CELL = ":cell "
"""Between a notebook's file and the number of a cell of it, in `Place.file`; `line` is then that cell's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where in a program. Lines count from 1, columns from 1 (0: not known); `text` is the line as it is written."""

    file: str
    line: int
    column: int = 0
    end_line: int = 0
    end_column: int = 0
    function: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a claim rests on; what does not apply, or is not known, is None or empty.

    `memory` is "device" or "host": whose memory the bytes are. `holder` is the name that keeps what should go, as the
    program writes it (`total_loss`, `self.features`), and `chain` what leads from it to the tensors. `first_step` and
    `last_step` are those between which it was seen, `bytes_per_step` the growth between equal points of them.
    """

    memory: str = DEVICE
    size_bytes: int | None = None
    bytes_per_step: int | None = None
    first_step: int | None = None
    last_step: int | None = None
    holder: str = ""
    chain: tuple[str, ...] = ()
    numbers: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that costs memory, or makes the result wrong, and what to do about it.

        for finding in result.findings:
            print(finding.code, finding.place.line, finding.claim, finding.advice)

    `claim` and `advice` are sentences for a person. `place` is the line to change; `more_places` belong to it.
    """

    code: str
    claim: str
    advice: str
    place: Place | None = None
    more_places: tuple[Place, ...] = ()
    evidence: Evidence = field(default_factory=Evidence)

    @property
    def title(self) -> str:
        """The code and its name, as in "DF101 loss-kept-with-graph"."""
        rule = rule_of(self.code)
        return f"{self.code} {rule.name}" if rule else self.code

    def to_dict(self) -> dict[str, Any]:
        """The finding as plain values, for JSON; `from_dict` reads them back."""
        plain: dict[str, Any] = to_plain(self)
        return plain

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Finding:
        """The finding that `to_dict` gave, also after JSON."""
        return from_plain(cls, values)

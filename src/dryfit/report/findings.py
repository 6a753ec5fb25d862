"""Findings in the terminal: what, where, what it rests on, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from dryfit.findings import Evidence, Finding, Place
from dryfit.findings.finding import HOST
from dryfit.report.source_lines import place_of
from dryfit.report.terminal import sentence
from dryfit.units import format_bytes

if TYPE_CHECKING:
    from rich.console import Console

_MOST_IN_CHAIN = 5


def print_findings(console: Console, findings: Sequence[Finding]) -> None:
    """Print a blank line and a block for each finding, and at the end how to learn more; nothing if there are none."""
    for finding in findings:
        console.print()
        where, claim, *lines = lines_of(finding)
        sentence(console, f"{where} {claim}", style="bold")
        for line in lines:
            sentence(console, f"    {line}")
    if findings:
        console.print()
        sentence(console, learn_more(each.code for each in findings))


def lines_of(finding: Finding) -> list[str]:
    """A finding in lines: its code and place, the claim, the source line, the evidence, and what to do.

    ["DF101 train.py:41", "total_loss keeps ...", "total_loss += loss", "16.00 KiB a step ...", "Use ..."]
    """
    place = finding.place
    where = f"{finding.code} {place_of(place.file, place.line)}:" if place is not None else f"{finding.code}:"
    more = [f"also {place_of(each.file, each.line)}{_text(each)}" for each in finding.more_places]
    rest = [place.text.strip() if place is not None else "", evidence_line(finding.evidence), *more, finding.advice]
    return [where, finding.claim, *filter(None, rest)]


def evidence_line(evidence: Evidence) -> str:
    """What a finding rests on, in one line; "" where there is nothing to say.

    >>> evidence_line(Evidence(bytes_per_step=1 << 20, first_step=2, last_step=5, holder="kept", chain=("[3]",)))
    '1.00 MiB more on the card at each step, seen in steps 2 to 5; held by kept -> [3]'
    """
    where = "in the host's memory" if evidence.memory == HOST else "on the card"
    parts = []
    if evidence.bytes_per_step:
        parts.append(f"{format_bytes(evidence.bytes_per_step)} more {where} at each step")
    if evidence.size_bytes:
        whose = " in all" if evidence.bytes_per_step else f" {where}"
        parts.append(f"{format_bytes(evidence.size_bytes)}{whose}")
    if parts and evidence.first_step is not None:
        first, last = evidence.first_step, evidence.last_step
        parts.append(f"seen in step {first}" if last in (None, first) else f"seen in steps {first} to {last}")
    if evidence.holder:
        chain = evidence.chain[:_MOST_IN_CHAIN]
        links = [evidence.holder, *chain, *(["..."] if len(chain) < len(evidence.chain) else [])]
        held = f"held by {' -> '.join(links)}"
        return f"{', '.join(parts)}; {held}" if parts else held
    return ", ".join(parts)


def learn_more(codes: Iterable[str]) -> str:
    """How to read more of some codes.

    >>> learn_more(["DF102", "DF101", "DF102"])
    '`dryfit lint --explain DF101` says more, and so for DF102.'
    """
    first, *others = sorted(set(codes))
    also = f", and so for {', '.join(others)}" if others else ""
    return f"`dryfit lint --explain {first}` says more{also}."


def _text(place: Place) -> str:
    return f": {place.text.strip()}" if place.text else ""

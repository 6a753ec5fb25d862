"""The findings of all processes of a rehearsal as one list, and which of them says why the steps take more and more."""

from __future__ import annotations

from collections.abc import Sequence

from dryfit.findings import Finding
from dryfit.findings.finding import DEVICE
from dryfit.places import as_seen_from_here
from dryfit.rehearse.processes import Process


def findings_of(processes: Sequence[Process]) -> list[Finding]:
    """What the processes found, the first's first; what several of them found, as ranks do, once."""
    found: dict[tuple[object, ...], Finding] = {}
    for process in processes:
        for values in (process.end or {}).get("findings", []):
            finding = Finding.from_dict(values)
            place = finding.place
            found.setdefault(
                (finding.code, finding.evidence.holder, place and (place.file, place.line)),
                finding,
            )
    return list(found.values())


def why_not_looked(processes: Sequence[Process]) -> list[str]:
    """A note for each process in which looking for findings failed."""
    failures = {(process.end or {}).get("not_observed", "") for process in processes}
    return [
        "What the program keeps from step to step could not be looked for. This is our fault; please report it with "
        f"these lines:\n{failure.rstrip()}"
        for failure in sorted(failures)
        if failure
    ]


def keeper_of_growth(findings: Sequence[Finding]) -> str:
    """Who keeps most of what each step leaves on the card, and where; "" where no finding names it.

    "outputs (train.py:31, DF102)"
    """
    named = [each for each in findings if each.evidence.memory == DEVICE and each.evidence.holder and each.place]
    named = [each for each in named if each.evidence.bytes_per_step]
    if not named:
        return ""
    most = max(named, key=lambda each: each.evidence.bytes_per_step or 0)
    assert most.place is not None
    place = f"{as_seen_from_here(most.place.file)}:{most.place.line}"
    return f"{most.evidence.holder} ({place}, {most.code})"

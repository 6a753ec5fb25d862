"""One cause and one next step for an out-of-memory message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from dryfit.findings import Evidence, Finding
from dryfit.findings.finding import DEVICE, HOST
from dryfit.oom.by_form import conclusion_of_form
from dryfit.oom.by_numbers import (
    above_its_total,
    another_holder,
    fragmented,
    limited,
    metal_limit,
    request_above_total,
    somebody,
    too_big,
    unexplained,
)
from dryfit.oom.conclusion import Conclusion, Facts
from dryfit.oom.message import OomMessage


def verdict(
    message: OomMessage,
    *,
    settings: Mapping[str, str] | None = None,
    memory_stats: Mapping[str, int] | None = None,
) -> Finding:
    """Name the cause of an out-of-memory message, as far as its numbers prove one, and what to do next.

        for message in read_messages(log):
            finding = verdict(message, settings=settings_in(log))
            print(finding.code, finding.claim, finding.advice)

    `settings` are environment variables or the allocator's settings by name: what is on already is not advised.
    `memory_stats` is `torch.cuda.memory_stats()` at the failure, for messages without numbers. The codes are DF501 to
    DF509. Fragmentation (DF502) is named only if what is free and what PyTorch holds unused would together have served
    the request, and the unused part is a twentieth of the device or more: below that the next request fails anyway.
    """
    facts = Facts(_with_stats(message, memory_stats or {}), settings or {})
    conclusion = conclusion_of_form(facts) or _by_numbers(facts)
    return Finding(
        code=conclusion.code,
        claim=conclusion.claim,
        advice=conclusion.advice,
        place=message.place,
        evidence=Evidence(
            memory=HOST if message.backend == "host" else DEVICE,
            size_bytes=message.requested_bytes,
            numbers=dict(facts.message.numbers),
        ),
    )


# Each rules a cause out or in by itself. What comes first would be fatal whatever follows.
_FIRST: tuple[Callable[[Facts], Conclusion | None], ...] = (
    metal_limit,
    request_above_total,
    limited,
    above_its_total,
    unexplained,
)


def _by_numbers(facts: Facts) -> Conclusion:
    for cause in _FIRST:
        if found := cause(facts):
            return found
    # Any of these would have made room for the request; the cause is the one that holds most.
    if candidates := [found for cause in (another_holder, fragmented) for found in cause(facts)]:
        return max(candidates, key=lambda candidate: candidate.won_bytes).conclusion
    return somebody(facts) or too_big(facts)


def _with_stats(message: OomMessage, stats: Mapping[str, int]) -> OomMessage:
    allocated = stats.get("allocated_bytes.all.current")
    reserved = stats.get("reserved_bytes.all.current")
    if message.backend == "host" or message.reserved_bytes is not None or allocated is None or reserved is None:
        return message
    return replace(
        message, allocated_bytes=allocated, reserved_bytes=reserved, unused_bytes=max(reserved - allocated, 0)
    )
